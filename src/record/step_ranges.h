#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "record/leb128.h"

namespace quire::record {

/// Steps [from, to].
struct StepRange {
  uint64_t from = 0;
  uint64_t to = 0;
};

/// Ranges of steps in ascending order, some two bytes each: a sequence in a long queue may have as many as it
/// waits steps.
class StepRanges {
 public:
  /// REQUIRES: `range` begins after the end of the last one.
  void add(const StepRange& range) {
    append_leb128(bytes_, range.from - last_);
    append_leb128(bytes_, range.to - range.from);
    last_ = range.to;
  }
  /// Calls `visit` with each range, in order.
  template <class Visit>
  void each(const Visit& visit) const {
    uint64_t last = 0;
    for (std::string_view rest = bytes_; !rest.empty();) {
      const uint64_t from = last + take_leb128(rest).value();
      last = from + take_leb128(rest).value();
      visit(StepRange{from, last});
    }
  }

 private:
  std::string bytes_;
  uint64_t last_ = 0;
};

}  // namespace quire::record
