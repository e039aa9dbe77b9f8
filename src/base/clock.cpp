#include "base/clock.h"

#include <chrono>

#include <fmt/format.h>

#include "base/error.h"

namespace quire {

Nanos SteadyClock::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void VirtualClock::advance_to(Nanos time) {
  if (time < now()) throw Error(fmt::format("virtual clock: {} ns is before its {} ns", time, now()));
  now_.store(time, std::memory_order_release);
}

}  // namespace quire
