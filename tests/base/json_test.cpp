#include "base/json.h"

#include <fstream>

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
