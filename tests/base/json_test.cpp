#include "base/json.h"

#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/data.h"

namespace quire {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class Work>
std::string error_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ReadFile, NamesWhatIsWrong) {
  const auto dir = test::temp_dir();
  EXPECT_THAT(error_of([&] { read_file(dir / "absent"); }),
              AllOf(HasSubstr("absent"), HasSubstr("no such file")));
  EXPECT_THAT(error_of([&] { read_file(dir); }), HasSubstr("not a regular file"));
  std::ofstream(dir / "ten") << "0123456789";
  EXPECT_EQ(read_file(dir / "ten"), "0123456789");
  EXPECT_THAT(error_of([&] { read_file(dir / "ten", 9); }), AllOf(HasSubstr("10 bytes"), HasSubstr("9")));
}

TEST(ParseJson, SaysWhereItBreaks) {
  EXPECT_THAT(error_of([] { parse_json("{\"a\": 1, }", "f.json"); }),
              AllOf(HasSubstr("f.json"), HasSubstr("at byte 9")));
  EXPECT_THAT(error_of([] { parse_json("{\"a\": 1", "f.json"); }), HasSubstr("at byte 7"));
  EXPECT_THAT(error_of([] { parse_json("1 x", "f.json"); }),
              AllOf(HasSubstr("at byte 2"), HasSubstr("after the end")));
  EXPECT_THAT(error_of([] { parse_json("", "f.json"); }), HasSubstr("f.json"));
  EXPECT_EQ(parse_json(" [1, 2]\n", "f.json").as_array().size(), 2U);
}

TEST(ParseJson, TellsTextThatIsNoneFromJsonThatIsWrong) {
  const auto told = [](const std::string& text) { return error_of([&] { parse_json(text, "body"); }); };
  EXPECT_EQ(told("{\"a\": \"bc\xff\"}"), "body: at byte 9: not valid UTF-8 (byte 0xff)");
  EXPECT_EQ(told("{\"a\": \"\xed\xa0\x80\"}"), "body: at byte 7: not valid UTF-8 (byte 0xed)");
  EXPECT_EQ(told("{\"a\": \xff}"), "body: at byte 6: not valid UTF-8 (byte 0xff)");
  constexpr const char* kLone = "body: at byte 9: a lone surrogate (\\u{}), which is not a character";
  EXPECT_EQ(told(R"({"a": "bc\ud83d"})"), fmt::format(fmt::runtime(kLone), "d83d"));
  EXPECT_EQ(told(R"({"a": "bc\uD83Dx"})"), fmt::format(fmt::runtime(kLone), "d83d"));
  EXPECT_EQ(told(R"({"a": "bc\ude00"})"), fmt::format(fmt::runtime(kLone), "de00"));
  EXPECT_EQ(told(R"({"a": "bc\ud83d\ud83d\ude00"})"), fmt::format(fmt::runtime(kLone), "d83d"));
  EXPECT_EQ(told(R"({"a": "\\\ude00"})"), fmt::format(fmt::runtime(kLone), "de00"));
  EXPECT_EQ(told("\xEF\xBB\xBF{}"), "body: at byte 0: a byte order mark, which JSON does not have");
  EXPECT_THAT(told("\xFF\xFE{"), HasSubstr("at byte 0: a UTF-16 byte order mark"));
  EXPECT_EQ(told("{\"a\": \"b\nc\"}"),
            "body: at byte 8: a control character (0x0a) that a string has as \\u000a");
  // What is wrong with the JSON is told as that, whatever follows.
  EXPECT_THAT(told("{\"a\": 1, } \"\xff\""), HasSubstr("at byte 9: not valid JSON"));
  EXPECT_THAT(told(R"({"a": tr, "b": "\ud83d"})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(told("{\"a\": tr\nue}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(told("{\"a\": \"\xe2\x82"), HasSubstr("incomplete"));
  EXPECT_EQ(parse_json(R"(["\ud83d\ude00", "\\ud83d", "\u00e9"])", "body").at(0), "😀");
}

TEST(ParseJson, BoundsTheDepth) {
  const std::string deep(100'000, '[');
  EXPECT_THAT(error_of([&] { parse_json(deep, "f.json"); }), HasSubstr("f.json"));
}

TEST(JsonObject, ReadsWithDefaultsAndRanges) {
  const json::value value = parse_json(
      R"({"i": 3, "whole": 2.0, "x": 0.5, "b": true, "s": "text", "null": null, "o": {"deep": -1}})",
      "f.json");
  const std::filesystem::path where = "f.json";
  const JsonObject object(value, where);
  EXPECT_EQ(object.integer("i", 0, 10), 3);
  EXPECT_EQ(object.integer("whole", 0, 10), 2);
  EXPECT_EQ(object.number("i"), 3.0);
  EXPECT_EQ(object.number("x"), 0.5);
  EXPECT_TRUE(object.boolean("b"));
  EXPECT_EQ(object.string("s"), "text");
  EXPECT_FALSE(object.has("null"));
  EXPECT_EQ(object.integer_or("null", 7, 0, 10), 7);
  EXPECT_EQ(object.string_or("absent", "else"), "else");
  EXPECT_EQ(object.object("o").integer("deep", -5, 5), -1);
}

TEST(JsonObject, NamesTheKeyAtFault) {
  const json::value value = parse_json(R"({"i": 3, "x": 0.5, "o": {"deep": "no number"}})", "f.json");
  const std::filesystem::path where = "f.json";
  const JsonObject object(value, where);
  EXPECT_THAT(error_of([&] { object.integer("i", 4, 9); }), AllOf(HasSubstr("'i'"), HasSubstr("[4, 9]")));
  EXPECT_THAT(error_of([&] { object.integer("x", 0, 9); }), HasSubstr("integer"));
  EXPECT_THAT(error_of([&] { object.integer("absent", 0, 9); }),
              AllOf(HasSubstr("'absent'"), HasSubstr("missing")));
  EXPECT_THAT(error_of([&] { object.object("o").number("deep"); }), HasSubstr("'o.deep'"));
  EXPECT_THAT(error_of([&] { object.object("i"); }), AllOf(HasSubstr("'i'"), HasSubstr("object")));
  EXPECT_THAT(error_of([&] { JsonObject(value.at("i"), where); }), HasSubstr("object"));
}

TEST(JsonObject, KeepsItsPlaceWhenTheCallersIsGone) {
  const json::value value = parse_json(R"({"o": {}})", "f.json");
  const std::string name = "a-name-that-is-longer-than-any-small-string-optimisation.json";
  const JsonObject object(value, std::filesystem::path(name));  // a temporary
  EXPECT_THAT(error_of([&] { object.object("o").integer("i", 0, 9); }), HasSubstr(name + ": key 'o.i'"));
}

}  // namespace
}  // namespace quire
