#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/json.h"
#include "tests/support/data.h"

// What the tests against Python's renderings share.
namespace quire::test {

inline constexpr const char* kTemplateFolder = "chat-templates";  // in the test data

inline json::array cases_of(const std::filesystem::path& file) {
  return read_json_file(data_dir() / kTemplateFolder / file).at("cases").as_array();
}

inline std::string text_of(const json::value& value) { return std::string(value.as_string()); }

template <class Word>
std::string fnv1a(std::string_view text) {
  constexpr bool kWide = sizeof(Word) == 8;
  auto value = static_cast<Word>(kWide ? 0xCBF29CE484222325 : 0x811C9DC5);
  for (const char c : text) {
    value = (value ^ static_cast<unsigned char>(c)) * static_cast<Word>(kWide ? 0x100000001B3 : 0x01000193);
  }
  return fmt::format("{:0{}x}", value, 2 * sizeof(Word));
}

}  // namespace quire::test
