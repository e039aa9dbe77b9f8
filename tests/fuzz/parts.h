#pragma once

#include <string_view>
#include <vector>

namespace quire::fuzz {

inline constexpr std::string_view kPartsSeparator = "\n--\n";

/// An input that is several files: what stands between the separators. Always `count` parts, empty ones where
/// the input has fewer; what is beyond belongs to the last.
inline std::vector<std::string_view> parts_of(std::string_view input, size_t count) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < count) {
    const size_t end = input.find(kPartsSeparator);
    parts.push_back(input.substr(0, end));
    input.remove_prefix(end == std::string_view::npos ? input.size() : end + kPartsSeparator.size());
  }
  parts.push_back(input);
  return parts;
}

}  // namespace quire::fuzz
