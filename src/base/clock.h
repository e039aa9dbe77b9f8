#pragma once

#include "base/ids.h"

namespace quire {

/// Where `now` comes from. Thread-safe; never runs backwards.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos now() const = 0;
};

/// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  Nanos now() const override;
};

}  // namespace quire
