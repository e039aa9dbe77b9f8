#include <map>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/data.h"
#include "tests/text/jinja_render.h"
#include "text/chat_templates.h"

// Against Python's own renderings: the test data's, and the fixtures that chat_template_reference.py made.
namespace quire::test {
namespace {

const std::filesystem::path kFolder = "chat-templates";
const std::filesystem::path kFixtures = "tests/text/fixtures";

json::array cases_of(const std::filesystem::path& file) {
  return read_json_file(data_dir() / kFolder / file).at("cases").as_array();
}

std::string text_of(const json::value& value) { return std::string(value.as_string()); }

template <class Word>
std::string fnv1a(std::string_view text) {
  constexpr bool kWide = sizeof(Word) == 8;
  auto value = static_cast<Word>(kWide ? 0xCBF29CE484222325 : 0x811C9DC5);
  for (const char c : text) {
    value = (value ^ static_cast<unsigned char>(c)) * static_cast<Word>(kWide ? 0x100000001B3 : 0x01000193);
  }
  return fmt::format("{:0{}x}", value, 2 * sizeof(Word));
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

std::string replaced(std::string text, char mark, std::string_view value) {
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + value.size())) {
    text.replace(at, 1, value);
  }
  return text;
}

std::vector<std::string> texts_of(const json::value& list) {
  std::vector<std::string> out;
  for (const json::value& each : list.as_array()) out.push_back(text_of(each));
  return out;
}

/// Every operator, filter, test and method with every value; jinja_grid.py has the form of the fixture.
TEST(JinjaReference, OwnGrid) {
  const json::value file = read_json_file(kFixtures / "jinja_grid.json");
  const std::string set = text_of(file.at("set"));
  const std::vector<std::string> values = texts_of(file.at("values"));
  const std::vector<std::string> operands = texts_of(file.at("operands"));
  size_t compared = 0;
  size_t skipped = 0;
  for (const json::value& row : file.at("rows").as_array()) {
    const std::string source = text_of(row.at(0));
    const bool binary = source.find('#') != std::string::npos;
    std::istringstream outcomes(text_of(row.at(1)));
    std::string expected;
    for (const std::string& first : binary ? operands : values) {
      for (size_t i = 0; i < (binary ? operands.size() : 1); ++i) {
        ASSERT_TRUE(outcomes >> expected) << source;
        if (expected == "?") {
          ++skipped;
          continue;
        }
        std::string cell = set + "{% set v = " + first + " %}";
        if (binary) cell += "{% set w = " + operands[i] + " %}";
        cell += replaced(replaced(source, '@', "v"), '#', "w");
        const Rendering got = render_jinja(cell, file.at("context").as_object());
        EXPECT_EQ(got.failed ? "!" : fnv1a<uint32_t>(got.text), expected) << cell << "\n"
                                                                          << got.error << got.text;
        ++compared;
      }
    }
    EXPECT_FALSE(outcomes >> expected) << source;
  }
  EXPECT_GE(compared, 50 * skipped);
  RecordProperty("compared", static_cast<int>(compared));
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

Expected<std::string> render_conversation(const ChatTemplates& parsed, json::object context) {
  return context.erase("continue_final_message") > 0
             ? parsed.render_open(std::move(context), kPinnedClock.now)
             : parsed.render(std::move(context), kPinnedClock.now);
}

TEST(JinjaReference, EveryTemplateWithEveryConversation) {
  QUIRE_NEEDS_DATA(kFolder);
  const json::value fixture = read_json_file(kFixtures / "chat_template_reference.json");
  const std::map<std::string, std::string> templates = all_templates();
  size_t rendered = 0;
  size_t raised = 0;
  for (const auto& [name, outcomes] : fixture.at("outcomes").as_object()) {
    const auto source = templates.find(std::string(name));
    ASSERT_NE(source, templates.end()) << name;
    const ChatTemplates parsed(
        ChatTemplate::parse(source->second, std::string(name), fixture.at("tokens").as_object()));
    size_t i = 0;
    for (const auto& [title, conversation] : fixture.at("conversations").as_object()) {
      const Expected<std::string> got = render_conversation(parsed, conversation.as_object());
      const json::value& expected = outcomes.at(i++);
      SCOPED_TRACE(fmt::format("{} / {}", std::string_view(name), std::string_view(title)));
      EXPECT_EQ(got.has_value(), !expected.is_null()) << (got ? *got : got.error().message);
      if (!got || expected.is_null()) {
        raised += got ? 0 : 1;
        continue;
      }
      ++rendered;
      EXPECT_EQ(got->size(), expected.at(0).to_number<size_t>()) << *got;
      EXPECT_EQ(fnv1a<uint64_t>(*got), text_of(expected.at(1))) << *got;
    }
  }
  EXPECT_GE(rendered, 1500U);
  EXPECT_GE(raised, 300U);
  RecordProperty("rendered", static_cast<int>(rendered));
  RecordProperty("raised", static_cast<int>(raised));
}

}  // namespace
}  // namespace quire::test
