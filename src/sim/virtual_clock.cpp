#include "sim/virtual_clock.h"

#include <fmt/format.h>

#include "base/error.h"

namespace quire::sim {

void VirtualClock::advance_to(Nanos time) {
  if (time < now()) throw Error(fmt::format("virtual clock: {} ns is before its {} ns", time, now()));
  now_.store(time, std::memory_order_release);
}

}  // namespace quire::sim
