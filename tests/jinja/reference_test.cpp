#include "tests/jinja/reference.h"

#include <sstream>

#include <gtest/gtest.h>

#include "tests/jinja/render.h"
#include "tests/support/data.h"

// Against Python's own renderings: the test data's, and the fixtures that cases.py and grid.py made.
namespace quire::test {
namespace {

const std::filesystem::path kFixtures = "tests/jinja/fixtures";

TEST(JinjaReference, SmallCasesOfTheTestData) {
  QUIRE_NEEDS_DATA(kTemplateFolder);
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
  QUIRE_NEEDS_DATA(kTemplateFolder);
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
  QUIRE_NEEDS_DATA(kTemplateFolder);
  const json::value file = read_json_file(data_dir() / kTemplateFolder / "llama_cpp_chat_cases.json");
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
  const json::value file = read_json_file(kFixtures / "cases.json");
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

/// Every operator, filter, test and method with every value; grid.py has the form of the fixture.
TEST(JinjaReference, OwnGrid) {
  const json::value file = read_json_file(kFixtures / "grid.json");
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

}  // namespace
}  // namespace quire::test
