#include "base/clock.h"

#include <chrono>

namespace quire {

Nanos SteadyClock::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace quire
