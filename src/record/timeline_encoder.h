#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "record/timeline_parts.h"

namespace quire::record {

/// Writes the streams of a RunTimeline, which says how. Pure.
class TimelineEncoder {
 public:
  /// `sequences`: those that the streams name, ascending.
  explicit TimelineEncoder(std::vector<size_t> sequences) : sequences_(std::move(sequences)) {}

  const std::vector<size_t>& sequences() const { return sequences_; }
  std::string encode(const Changes& changes) const;
  std::string encode(const Events& events) const;
  std::string encode(const Segments& segments, std::span<const Look> looks) const;

 private:
  uint64_t number(size_t seq) const;

  std::vector<size_t> sequences_;
};

/// The blocks that only the prefix index holds, after each step.
std::vector<uint32_t> count_cached(const Changes& changes);

}  // namespace quire::record
