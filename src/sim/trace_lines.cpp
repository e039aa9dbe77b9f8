#include "sim/trace_lines.h"

#include <charconv>
#include <system_error>

#include "sim/workload_lengths.h"

namespace quire::sim {

TextLines::TextLines(std::string_view text) : text_(without_mark(text)) {}

bool TextLines::next(std::string_view& line) {
  while (!text_.empty()) {
    ++number_;
    const size_t end = text_.find('\n');
    line = text_.substr(0, end);
    text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) return true;
  }
  return false;
}

std::string_view without_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

std::optional<uint64_t> parse_whole(std::string_view text, uint64_t most) {
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::optional<Nanos> parse_decimal(std::string_view text, uint64_t most, Nanos unit) {
  const size_t point = text.find('.');
  const auto whole = parse_whole(text.substr(0, point), most);
  if (!whole) return std::nullopt;
  Nanos fraction = 0;
  if (point != std::string_view::npos) {
    const std::string_view decimals = text.substr(point + 1);
    if (decimals.empty()) return std::nullopt;
    Nanos place = unit;
    for (const char c : decimals) {
      if (c < '0' || c > '9') return std::nullopt;
      place /= 10;
      fraction += (c - '0') * place;
    }
  }
  return static_cast<Nanos>(*whole) * unit + fraction;
}

}  // namespace quire::sim
