#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"

// What the readers of traces and histograms share.
namespace quire::sim {

/// The lines of a text, without a byte order mark, ends of lines and empty lines. `text` must outlive it.
class TextLines {
 public:
  explicit TextLines(std::string_view text);
  /// The next line, counted from 1; false at the end.
  bool next(std::string_view& line);
  uint64_t number() const { return number_; }

 private:
  std::string_view text_;
  uint64_t number_ = 0;
};

/// Without a byte order mark.
std::string_view without_mark(std::string_view text);

/// A number from 0 to `most`, digits only.
std::optional<uint64_t> parse_whole(std::string_view text, uint64_t most);

/// The parts between separators, at least one.
std::vector<std::string_view> split(std::string_view text, char separator);

/// A time with decimals or none, "12.5", in units of `unit`, a power of ten, up to `most` whole ones; less
/// than a nanosecond is dropped.
std::optional<Nanos> parse_decimal(std::string_view text, uint64_t most, Nanos unit);

}  // namespace quire::sim
