#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/data.h"
#include "tests/text/jinja_render.h"

// Against Python's own renderings: the test data's, and the fixtures that chat_template_reference.py made.
namespace quire::test {
namespace {

const std::filesystem::path kFolder = "chat-templates";
const std::filesystem::path kFixtures = "tests/text/fixtures";

json::array cases_of(const std::filesystem::path& file) {
  return read_json_file(data_dir() / kFolder / file).at("cases").as_array();
}

std::string text_of(const json::value& value) { return std::string(value.as_string()); }

std::string fnv1a(std::string_view text) {
  uint64_t value = 0xCBF29CE484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return fmt::format("{:016x}", value);
}

TEST(JinjaReference, SmallCasesOfTheTestData) {
  QUIRE_NEEDS_DATA(kFolder);
  size_t compared = 0;
  for (const json::value& each : cases_of("hf_jinja_unit_cases.json")) {
    const json::object& test = each.as_object();
    if (test.at("needs_host_function").as_bool()) continue;
    const Rendering got = render_jinja(text_of(test.at("template")), test.at("context").as_object(),
                                       {.trim_blocks = false, .lstrip_blocks = false});
    SCOPED_TRACE(text_of(test.at("name")));
    const json::value& expected = test.at("python_jinja2_output");
    EXPECT_EQ(got.failed, expected.is_null()) << got.error;
    if (!expected.is_null()) {
      EXPECT_EQ(got.text, text_of(expected));
    }
    ++compared;
  }
  EXPECT_GE(compared, 75U);
}

TEST(JinjaReference, RealTemplatesOfTheTestData) {
  QUIRE_NEEDS_DATA(kFolder);
  size_t compared = 0;
  for (const json::value& each : cases_of("hf_jinja_e2e_cases.json")) {
    const json::object& test = each.as_object();
    if (!test.at("python_jinja2_matches").as_bool()) continue;
    const Rendering got = render_jinja(text_of(test.at("chat_template")), test.at("data").as_object());
    EXPECT_EQ(got.text, text_of(test.at("target"))) << text_of(test.at("name")) << ": " << got.error;
    ++compared;
  }
  EXPECT_GE(compared, 25U);
}

TEST(JinjaReference, ChatCasesOfTheTestData) {
  QUIRE_NEEDS_DATA(kFolder);
  const json::value file = read_json_file(data_dir() / kFolder / "llama_cpp_chat_cases.json");
  size_t compared = 0;
  for (const json::value& each : file.at("cases").as_array()) {
    const json::object& test = each.as_object();
    const json::object context = {{"messages", file.at("messages")},
                                  {"add_generation_prompt", true},
                                  {"bos_token", test.at("bos_token")},
                                  {"eos_token", test.at("eos_token")}};
    const Rendering got = render_jinja(text_of(test.at("template")), context);
    SCOPED_TRACE(text_of(test.at("name")));
    const json::value& expected = test.at("python_jinja2_output");
    EXPECT_EQ(got.failed, expected.is_null()) << got.error;
    if (!expected.is_null()) {
      EXPECT_EQ(got.text, text_of(expected));
    }
    ++compared;
  }
  EXPECT_GE(compared, 15U);
}

TEST(JinjaReference, OwnSmallCases) {
  const json::value file = read_json_file(kFixtures / "jinja_cases.json");
  for (const json::value& each : file.at("cases").as_array()) {
    const std::string source = text_of(each.at(0));
    const Rendering got = render_jinja(source, file.at("context").as_object());
    const json::value& expected = each.at(1);
    EXPECT_EQ(got.failed, expected.is_null()) << source << "\n" << got.error;
    if (!expected.is_null()) {
      EXPECT_EQ(got.text, text_of(expected)) << source;
    }
    if (got.failed) {
      EXPECT_GT(got.line, 0U) << source;
    }
  }
}

/// The names under which the fixture lists the templates.
std::map<std::string, std::string> all_templates() {
  std::map<std::string, std::string> out;
  for (const auto& entry :
       std::filesystem::directory_iterator(data_dir() / kFolder / "llama.cpp-templates")) {
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

TEST(JinjaReference, EveryTemplateWithEveryConversation) {
  QUIRE_NEEDS_DATA(kFolder);
  const json::value fixture = read_json_file(kFixtures / "chat_template_reference.json");
  const std::map<std::string, std::string> templates = all_templates();
  size_t rendered = 0;
  for (const auto& [name, outcomes] : fixture.at("outcomes").as_object()) {
    const auto source = templates.find(std::string(name));
    ASSERT_NE(source, templates.end()) << name;
    size_t i = 0;
    for (const auto& [title, conversation] : fixture.at("conversations").as_object()) {
      json::object context = fixture.at("tokens").as_object();
      for (const auto& [key, value] : conversation.as_object()) context[key] = value;
      const Rendering got = render_jinja(source->second, context);
      const json::value& expected = outcomes.at(i++);
      SCOPED_TRACE(fmt::format("{} / {}", std::string_view(name), std::string_view(title)));
      ASSERT_EQ(got.failed, expected.is_null()) << got.error << got.text;
      if (got.failed) continue;
      ++rendered;
      EXPECT_EQ(got.text.size(), expected.at(0).to_number<size_t>()) << got.text;
      EXPECT_EQ(fnv1a(got.text), text_of(expected.at(1))) << got.text;
    }
  }
  EXPECT_GE(rendered, 1000U);
}

}  // namespace
}  // namespace quire::test
