#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

// Python's str on valid UTF-8: positions and lengths count characters.
namespace quire::jinja {

/// The byte at which character `index` begins; the size if there are fewer characters.
size_t byte_of(std::string_view text, size_t index);
std::string_view substring(std::string_view text, size_t begin, size_t end);
std::vector<std::string_view> split_chars(std::string_view text);

/// str.isspace's characters.
bool is_python_space(char32_t code);
bool is_printable(char32_t code);

/// `text` without `chars` at both ends; `chars` null: without white space.
std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // str.title()

bool is_lower(std::string_view text);
bool is_upper(std::string_view text);
bool is_space(std::string_view text);
bool is_alpha(std::string_view text);
bool is_alnum(std::string_view text);
bool is_digit(std::string_view text);
bool is_decimal(std::string_view text);
bool is_numeric_text(std::string_view text);
bool is_identifier(std::string_view text);

/// 0 to 9 for the decimal digits of any script, else -1.
int decimal_value(char32_t code);
bool is_word_char(char32_t code);  // \w of Python's re

/// str.splitlines()
void split_lines(std::string_view text, bool keep_ends, const std::function<void(std::string_view)>& visit);

/// The first `needle` at or after byte `from`; npos if none. Linear in the length (memmem).
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);

/// The unconditional mapping in SpecialCasing.txt; nullptr if the simple mapping applies. (casing.cpp)
struct SpecialCase {
  char32_t code;
  const char* upper;
  const char* title;
};
const SpecialCase* special_case(char32_t code);

}  // namespace quire::jinja
