#pragma once

#include <string_view>

namespace quire {

/// `text` without the blanks at both ends.
constexpr std::string_view trim(std::string_view text, std::string_view blanks = " \t\r\n") {
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

}  // namespace quire
