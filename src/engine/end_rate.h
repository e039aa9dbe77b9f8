#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/ids.h"

namespace quire::engine {

/// The rate at which sequences end, measured over the last kKept ends of the current busy period. Not
/// thread-safe.
class EndRate {
 public:
  static constexpr size_t kKept = 64;

  /// A busy period begins; earlier periods are ignored.
  void begin(Nanos now) {
    count_ = 0;
    begun_ = now;
  }
  void end(Nanos now) { ends_[count_++ % kKept] = now; }
  /// Always above 0: until there are enough ends, one is assumed to occur now.
  double per_second(Nanos now) const {
    const bool full = count_ >= kKept;
    const Nanos since = full ? ends_[count_ % kKept] : begun_;
    const size_t ends = full ? kKept : count_ + 1;
    constexpr Nanos kLeast = 1'000'000;
    return static_cast<double>(ends) * 1e9 / static_cast<double>(std::max(now - since, kLeast));
  }

 private:
  std::array<Nanos, kKept> ends_{};
  size_t count_ = 0;
  Nanos begun_ = 0;
};

}  // namespace quire::engine
