#pragma once

#include <filesystem>
#include <map>
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

/// The real templates of the test data, under the names by which the fixture of tests/tokenize lists them.
inline std::map<std::string, std::string> all_templates() {
  std::map<std::string, std::string> out;
  for (const auto& entry :
       std::filesystem::directory_iterator(data_dir() / kTemplateFolder / "llama.cpp-templates")) {
    if (entry.path().extension() == ".jinja") out[entry.path().filename().string()] = read_file(entry.path());
  }
  for (const auto& [file, key] : {std::pair("hf_jinja_e2e_cases.json", "chat_template"),
                                  std::pair("llama_cpp_chat_cases.json", "template")}) {
    size_t i = 0;
    for (const json::value& each : cases_of(file))
      out[fmt::format("{}#{}", file, i++)] = text_of(each.at(key));
  }
  return out;
}

}  // namespace quire::test
