#include "grammar/schema.h"

#include <string>
#include <vector>

#include <boost/json/parse.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/grammar/follow.h"

namespace quire::grammar {
namespace {

struct SchemaCase {
  const char* name;
  const char* schema;
  std::vector<std::string> yes;
  std::vector<std::string> no;
};

void PrintTo(const SchemaCase& each, std::ostream* out) { *out << each.name; }

class Enforced : public testing::TestWithParam<SchemaCase> {};

TEST_P(Enforced, AcceptsInstancesAndNothingElse) {
  const auto grammar = schema_grammar(boost::json::parse(GetParam().schema));
  ASSERT_TRUE(grammar) << grammar.error().pointer << ": " << grammar.error().message;
  QUIRE_NEEDS_XGRAMMAR();
  expect_texts(*grammar, GetParam().yes, GetParam().no);
}

const SchemaCase kCases[] = {
    {"True", "true", {"1", "[{}]", "\"a\"", "null", "{\"a\": {\"b\": []}}"}, {"", "nul", "{", "01", "'a'"}},
    {"Empty", "{}", {"-1.5e3", "[ 1, 2]"}, {"[1,]"}},
    {"Null", R"({"type": "null"})", {"null"}, {"0", "\"null\""}},
    {"Boolean", R"({"type": "boolean"})", {"true", "false"}, {"1", "True"}},
    {"Integer", R"({"type": "integer"})", {"0", "-12", "1234567890123456789"}, {"1.0", "01", "1e3", "-"}},
    {"Number", R"({"type": "number"})", {"0", "-1.25", "1e-9", "2E+10"}, {".5", "1.", "--1", "NaN"}},
    {"Types", R"({"type": ["string", "null"]})", {"null", "\"\""}, {"1", "[]"}},
    {"String",
     R"({"type": "string"})",
     {"\"a\\n\\u00e9\\ud83d\\ude00\xC3\xA9\"", "\"\""},
     {"\"\n\"", "\"\\ud83d\"", "\"\\x\"", "\"\"\"", "\"\x01\"", "\"\xED\xA0\x80\"", "\"\xE0\x80\x80\""}},
    {"Lengths",
     R"({"type": "string", "minLength": 2, "maxLength": 3})",
     {"\"ab\"", "\"\xC3\xA9\\n\\u0041\""},
     {"\"a\"", "\"abcd\"", "\"\\n\""}},
    {"LongLengths",
     R"({"type": "string", "minLength": 1, "maxLength": 40})",
     {"\"a\"", "\"" + std::string(40, 'x') + "\""},
     {"\"\"", "\"" + std::string(41, 'x') + "\""}},
    {"MinLength", R"({"minLength": 3})", {"\"abc\"", "\"abcdefgh\""}, {"\"ab\"", "1"}},
    {"Pattern", R"({"type": "string", "pattern": "^[a-c]+$"})", {"\"abc\""}, {"\"\"", "\"d\"", "\"a\\n\""}},
    {"PatternIsSearched", R"({"pattern": "fox"})", {"\"a fox!\"", "\"fox\""}, {"\"fo x\""}},
    {"PatternWithEscapes", R"({"pattern": "^\"\\\\\\n$"})", {"\"\\\"\\\\\\n\""}, {"\"\"\\\n\"", "\"x\""}},
    {"PatternAndLengths",
     R"({"pattern": "^[A-Z]+$", "minLength": 2, "maxLength": 3})",
     {"\"AB\"", "\"ABC\""},
     {"\"A\"", "\"ABCD\"", "\"Ab\""}},
    {"Date",
     R"({"type": "string", "format": "date"})",
     {"\"2026-11-30\""},
     {"\"2026-13-01\"", "\"2026-02-30\"", "\"x\""}},
    {"DateTime",
     R"({"format": "date-time", "type": "string"})",
     {"\"2026-11-30T23:59:00.5+01:00\""},
     {"\"2026-11-30T23:59:005Z\"", "\"2026-11-30\""}},
    {"Uuid",
     R"({"type": "string", "format": "uuid"})",
     {"\"00000000-0000-4000-8000-0123456789ab\""},
     {"\"0\""}},
    {"Ipv4",
     R"({"type": "string", "format": "ipv4"})",
     {"\"127.0.0.1\""},
     {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
    {"Email",
     R"({"type": "string", "format": "email"})",
     {"\"a.b@x-y.org\""},
     {"\"a@b\"", "\"@x.org\"", "\"a..b@x.org\""}},
    {"FormatAndLength",
     R"({"type": "string", "format": "date", "minLength": 3, "maxLength": 10})",
     {"\"2026-11-30\""},
     {"\"I talked,\""}},
    {"EmailAndLength",
     R"({"type": "string", "format": "email", "maxLength": 254})",
     {"\"a.b@x-y.org\""},
     {"\"a\""}},
    {"FormatAndEnum",
     R"({"format": "date", "enum": ["zz", "2026-11-30", 3]})",
     {"\"2026-11-30\"", "3"},
     {"\"zz\""}},
    {"FormatOfNames",
     R"({"properties": {"xx": {}, "2026-11-30": {}}, "propertyNames": {"format": "date"}})",
     {"{}", "{\"2026-11-30\": 1}"},
     {"{\"xx\": 1}"}},
    {"MultipleOfOne", R"({"type": "number", "multipleOf": 1})", {"3", "-20"}, {"1.5", "0.25"}},
    {"MultipleOfOneAndEnum", R"({"enum": [1.5, 2, "a"], "multipleOf": 1})", {"2", "\"a\""}, {"1.5"}},
    {"LargeIntegers",
     R"({"type": "integer", "minimum": 9223372036854770000, "maximum": 9223372036854775807})",
     {"9223372036854775807"},
     {"9502010312140344600", "9223372036854775808"}},
    {"LargeConst",
     R"({"enum": [9007199254740993, 9007199254740992], "maximum": 9007199254740992})",
     {"9007199254740992"},
     {"9007199254740993"}},
    {"OneOfMeant",
     R"({"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "minLength": 1}]})",
     {"1", "\"a\""},
     {"0", "\"\"", "null"}},
    {"OneOfListed",
     R"({"oneOf": [{"type": "null"}, {"const": 3}, {"enum": ["a", 4]}, {"type": "string", "minLength": 2}]})",
     {"null", "3", "\"a\"", "4", "\"ab\""},
     {"\"b\"", "5"}},
    {"OneOfInside",
     R"({"oneOf": [{"oneOf": [{"type": "null"}, {"type": "integer"}]}, {"type": "object"}]})",
     {"1", "null", "{}"},
     {"true", "\"\""}},
    {"OtherFormat", R"({"type": "string", "format": "colour"})", {"\"x\""}, {"1"}},
    {"Minimum",
     R"({"type": "integer", "minimum": -3, "exclusiveMaximum": 12})",
     {"-3", "0", "11"},
     {"-4", "12", "-0"}},
    {"NumberBounds",
     R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1.5})",
     {"0.5", "1", "1.5", "1.25"},
     {"0", "0.0", "1.51", "2", "-1"}},
    {"MultipleOf", R"({"type": "integer", "multipleOf": 5})", {"0", "15", "-20"}, {"1", "12"}},
    {"Const", R"({"const": {"a": [1, "x"]}})", {"{\"a\": [1, \"x\"]}"}, {"{\"a\": [1]}", "{}"}},
    {"Enum", R"({"enum": ["a", 1, null, 0.1]})", {"\"a\"", "1", "null", "0.1"}, {"\"b\"", "2", "a"}},
    {"EnumWithSiblings",
     R"({"enum": ["a", 1, 7, "abc"], "type": ["string", "integer"], "minimum": 5, "maxLength": 2})",
     {"\"a\"", "7"},
     {"1", "\"abc\""}},
    {"ConstAndEnum", R"({"enum": [1, 2], "const": 2})", {"2"}, {"1"}},
    {"Items",
     R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
     {"[1]", "[1, 2,3]", "[\n  1\n]"},
     {"[]", "[1,2,3,4]", "[\"a\"]", "[1 2]"}},
    {"NoItems", R"({"items": false})", {"[]"}, {"[1]"}},
    {"PrefixItems",
     R"({"prefixItems": [{"type": "string"}, {"type": "null"}], "items": {"type": "integer"}, "minItems": 1})",
     {"[\"a\"]", "[\"a\", null]", "[\"a\", null, 3, 4]"},
     {"[]", "[null]", "[\"a\", 1]"}},
    {"Tuple",
     R"({"prefixItems": [true, {"type": "null"}], "items": false, "minItems": 2})",
     {"[1, null]"},
     {"[1]", "[1, null, 2]"}},
    {"Properties",
     R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["a"]})",
     {"{\"a\": 1}", "{\"a\":1,\"b\": null}", "{\n  \"a\": 1,\n  \"b\": null\n}"},
     {"{}", "{\"b\": null}", "{\"a\": 1, \"c\": 2}", "{\"a\": \"1\"}", "{\"a\": 1, \"a\": 2}"}},
    {"AllOptional",
     R"({"properties": {"a": {}, "b": {}, "c": {}}})",
     {"{}", "{\"b\": 1}", "{\"a\": 1, \"c\": 1}"},
     {"{\"d\": 1}", "{,\"a\": 1}", "1"}},
    {"RequiredAlone", R"({"type": "object", "required": ["z"]})", {"{\"z\": [1]}"}, {"{}", "{\"y\": 1}"}},
    {"AdditionalProperties",
     R"({"properties": {"a": {"type": "null"}, "ab": {"type": "null"}}, "additionalProperties": {"type": "integer"}})",
     {"{\"a\": null, \"b\": 1, \"abc\": 2}", "{\"\": 1}"},
     {"{\"a\": 1}", "{\"b\": null}", "{\"\\u0061\": 1}", "{\"b\": 1, \"ab\": 2}"}},
    {"FalseProperty",
     R"({"properties": {"a": false, "b": {"type": "null"}}, "additionalProperties": true})",
     {"{\"b\": null, \"c\": 1}"},
     {"{\"a\": 1}", "{\"b\": 1}"}},
    {"OnlyFalseProperty",
     R"({"properties": {"a": false}, "additionalProperties": true})",
     {"{}", "{\"b\": 1}"},
     {"{\"a\": 1}"}},
    {"Map",
     R"({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2})",
     {"{\"a\": 1}", "{\"a\": 1, \"b\": 2}"},
     {"{}", "{\"a\": null}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"PropertyNames",
     R"({"propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": {"type": "null"}})",
     {"{}", "{\"ab\": null}"},
     {"{\"A\": null}", "{\"a\": 1}", "{\"\": null}"}},
    {"PropertyNamesOfNamed",
     R"({"properties": {"a": {}, "bb": {}}, "propertyNames": {"maxLength": 1}})",
     {"{\"a\": 1}"},
     {"{\"bb\": 1}"}},
    {"PatternProperties",
     R"({"patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": false})",
     {"{}", "{\"n_a\": 1}"},
     {"{\"n_a\": null}", "{\"b\": 1}"}},
    {"CountedProperties",
     R"({"properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": false, "minProperties": 2, "maxProperties": 2})",
     {"{\"a\": 1, \"c\": 2}", "{\"b\": 1, \"c\": 2}"},
     {"{\"a\": 1}", "{\"a\": 1, \"b\": 1, \"c\": 1}", "{}"}},
    {"AnyOf",
     R"({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "string", "maxLength": 1}]})",
     {"5", "\"a\""},
     {"4", "\"ab\"", "null"}},
    {"AnyOfWithSiblings",
     R"({"type": "string", "anyOf": [{"minLength": 3}, {"type": "integer"}, {"maxLength": 1}]})",
     {"\"abc\"", "\"a\""},
     {"\"ab\"", "1"}},
    {"OneOf", R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", {"1", "\"a\""}, {"null"}},
    {"OneOfWithDiscriminator",
     R"({"oneOf": [{"properties": {"k": {"const": "a"}, "v": {"type": "null"}}, "required": ["k"]},
                                           {"properties": {"k": {"const": "b"}}, "required": ["k"]}]})",
     {"{\"k\": \"a\", \"v\": null}", "{\"k\": \"b\"}"},
     {"{\"k\": \"c\"}", "{\"v\": null}"}},
    {"AllOf",
     R"({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}, {"type": ["number", "null"]}]})",
     {"3", "5"},
     {"2", "6", "null", "3.5"}},
    {"AllOfObjects",
     R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"a": {"minimum": 9}, "b": {}}}]})",
     {"{\"a\": 9, \"b\": 1}"},
     {"{\"a\": 8}", "{\"b\": 1}"}},
    {"AllOfClosed",
     R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"properties": {"b": {}}}]})",
     {"{\"a\": 1}", "{}"},
     {"{\"b\": 1}"}},
    {"RefWithSiblings",
     R"({"$defs": {"n": {"type": "integer", "minimum": 2}}, "$ref": "#/$defs/n", "maximum": 3})",
     {"2", "3"},
     {"1", "4", "\"a\""}},
    {"RefWithEscapes",
     R"({"$defs": {"a/b~c %": {"type": "null"}}, "$ref": "#/$defs/a~1b~0c%20%25"})",
     {"null"},
     {"1"}},
    {"Recursion",
     R"({"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}}, "required": ["v"], "additionalProperties": false})",
     {"{\"v\": 1, \"next\": {\"v\": 2, \"next\": {\"v\": 3}}}"},
     {"{\"v\": 1, \"next\": {}}", "{\"v\": 1, \"next\": 2}"}},
    // Two schemas that differ only in a property called like an annotation: XGrammar's own reading takes them
    // for one.
    {"PropertiesCalledLikeAnnotations",
     R"({"properties": {"a": {"properties": {"title": {"type": "string"}}, "required": ["title"]},
                                                   "b": {"properties": {"title": {"type": "integer"}}, "required": ["title"]}}})",
     {"{\"a\": {\"title\": \"x\"}, \"b\": {\"title\": 1}}"},
     {"{\"b\": {\"title\": \"x\"}}", "{\"a\": {\"title\": 1}}"}},
    {"NamesWithEscapes",
     R"({"properties": {"a\"b\\\n": {"type": "null"}}, "required": ["a\"b\\\n"]})",
     {"{\"a\\\"b\\\\\\n\": null}"},
     {"{}"}},
    {"Annotations",
     R"({"type": "null", "title": "t", "description": "d", "default": 1, "examples": [2], "x-mine": {}, "deprecated": true})",
     {"null"},
     {"1"}},
    {"NothingToUnique",
     R"({"type": "array", "items": {"type": "null"}, "uniqueItems": true, "maxItems": 1})",
     {"[]", "[null]"},
     {"[null, null]"}},
    {"Unevaluated",
     R"({"properties": {"a": {}}, "unevaluatedProperties": false})",
     {"{\"a\": 1}"},
     {"{\"b\": 1}"}},
};

INSTANTIATE_TEST_SUITE_P(Keywords, Enforced, testing::ValuesIn(kCases),
                         [](const auto& of) { return std::string(of.param.name); });

TEST(Schema, RefusesWhatItCannotEnforceAndSaysWhere) {
  struct Refusal {
    const char* schema;
    const char* pointer;
    const char* why;
  };
  const Refusal cases[] = {
      {R"({"not": {}})", "/not", "'not' is not supported"},
      {R"({"properties": {"a": {"if": {}, "then": {}}}})", "/properties/a/if", "'if'"},
      {R"({"dependentRequired": {}})", "/dependentRequired", "not supported"},
      {R"({"type": "array", "contains": {}})", "/contains", "not supported"},
      {R"({"type": "array", "uniqueItems": true})", "/uniqueItems", "not supported"},
      {R"({"$ref": "https://example.org/a"})", "/$ref", "same schema"},
      {R"({"$ref": "#/$defs/no"})", "/$ref", "does not have"},
      {R"({"$ref": "#a"})", "/$ref", "same schema"},
      {R"({"$dynamicRef": "#a"})", "/$dynamicRef", "not supported"},
      {R"({"$ref": "#"})", "", "refers to itself"},
      {R"({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#"}]}}})", "",
       "refers to itself"},
      {R"({"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]})", "",
       "no instance has an end"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "/oneOf", "may both hold"},
      {R"({"type": "string", "oneOf": [{"properties": {"k": {"const": 1}}, "required": ["k"]}, {"properties": {"k": {"const": 2}}, "required": ["k"]}]})",
       "", "no instance"},
      // An instance of a type of which neither branch speaks satisfies both.
      {R"({"oneOf": [{"minLength": 1}, {"minimum": 1}]})", "/oneOf", "may both hold"},
      {R"({"oneOf": [{"type": "null"}, {"properties": {"a": {"type": "integer"}}}]})", "/oneOf",
       "may both hold"},
      {R"({"oneOf": [{"type": "integer"}, {"minLength": 2}]})", "/oneOf", "may both hold"},
      {R"({"properties": {"a": {"oneOf": [{"type": "string", "maxLength": 5}, {"items": {"type": "integer"}}]}}})",
       "/properties/a/oneOf", "may both hold"},
      {R"({"oneOf": [{"enum": ["ab"]}, {"type": "string", "minLength": 2}]})", "/oneOf", "may both hold"},
      {R"({"oneOf": [{"oneOf": [{"type": "null"}, {"required": ["a"], "type": "object"}]}, {"properties": {"b": {}}}]})",
       "/oneOf", "may both hold"},
      {R"({"properties": {"foo": false}, "patternProperties": {"^foo$": {}}})", "/patternProperties",
       "matches the property"},
      {R"({"allOf": [{"properties": {"a": false}}, {"patternProperties": {"^a$": {}}}]})",
       "/allOf/1/patternProperties", "matches the property"},
      {R"({"format": "date", "pattern": "^[0-9-]+$"})", "/pattern", "beside a format"},
      {R"({"format": "date", "maxLength": 9})", "/format", "does not imply"},
      {R"({"allOf": [{"format": "date"}, {"format": "time"}]})", "/allOf/1/format", "two different"},
      {R"({"const": 1e400})", "/const", "too large"},
      {R"({"enum": [{"a": [-1e999]}]})", "/enum", "too large"},
      {R"({"const": 123456789012345678901})", "/const", "more than 15 digits"},
      {R"({"maximum": 123456789012345678901})", "/maximum", "more than 15 digits"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", "", "no instance"},
      {R"({"properties": {"a": false}, "required": ["a"]})", "", "no instance"},
      {R"(false)", "", "no instance"},
      {R"({"enum": []})", "/enum", "at least one"},
      {R"({"anyOf": []})", "/anyOf", "at least one"},
      {R"({"type": "thing"})", "/type", "must be one of"},
      {R"j({"pattern": "a(?=b)"})j", "/pattern", "lookahead"},
      {R"({"pattern": "^(ab)+$", "maxLength": 4})", "/pattern", "does not imply"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", "/allOf/1/pattern", "two different patterns"},
      {R"({"multipleOf": 0.5})", "/multipleOf", "must be an integer"},
      {R"({"type": "integer", "multipleOf": 7})", "/multipleOf", "needs minimum and maximum"},
      {R"({"minLength": -1})", "/minLength", "must be an integer"},
      {R"({"maxLength": 2.5})", "/maxLength", "must be an integer"},
      {R"({"items": [{}]})", "/items", "prefixItems"},
      {R"({"properties": {"a~/b": 3}})", "/properties/a~0~1b", "must be a schema"},
      {R"({"patternProperties": {"^a": {}, "^b": {}}})", "/patternProperties", "more than one"},
      {R"({"patternProperties": {"^a": {}}, "properties": {"ab": {}}})", "/patternProperties",
       "matches the property"},
      {R"({"type": "object", "minProperties": 2})", "", "minProperties above 1"},
      {R"({"$defs": {"a": {"$id": "x"}}, "$ref": "#/$defs/a"})", "/$defs/a/$id", "identifier"},
      {R"({"enum": [{"a": 1}], "required": ["a"]})", "", "beside keywords"},
      {R"({"propertyOrdering": []})", "/propertyOrdering", "'propertyOrdering' is not supported"},
  };
  for (const Refusal& each : cases) {
    const auto grammar = schema_grammar(boost::json::parse(each.schema));
    ASSERT_FALSE(grammar) << each.schema;
    EXPECT_EQ(grammar.error().pointer, each.pointer) << each.schema << ": " << grammar.error().message;
    EXPECT_NE(grammar.error().message.find(each.why), std::string::npos)
        << each.schema << ": " << grammar.error().message;
  }
}

TEST(Schema, IsBoundedAgainstHostileOnes) {
  std::string many = R"({"$defs": {"d0": {"type": "null"})";
  for (int i = 1; i < 40; ++i) {
    many += ",\"d" + std::to_string(i) + R"(": {"anyOf": [{"$ref": "#/$defs/d)" + std::to_string(i - 1) +
            R"("}, {"$ref": "#/$defs/d)" + std::to_string(i - 1) + "\"}]}";
  }
  many += R"(}, "$ref": "#/$defs/d39"})";
  EXPECT_FALSE(schema_grammar(boost::json::parse(many)));
  boost::json::array values;
  for (int i = 0; i < 3000; ++i) values.emplace_back(i);
  EXPECT_FALSE(schema_grammar(boost::json::object{{"enum", values}}));
  std::string all = R"({"allOf": [{"anyOf": [{"minimum": 0})";
  for (int i = 1; i < 20; ++i) all += R"(,{"minimum": )" + std::to_string(i) + "}";
  all += "]}";
  std::string twice =
      all + "," + all.substr(all.find("{\"anyOf\"")) + "," + all.substr(all.find("{\"anyOf\"")) + "]}";
  EXPECT_FALSE(schema_grammar(boost::json::parse(twice)));
}

void expect_too_much(const std::string& schema, const char* why) {
  const auto grammar = schema_grammar(boost::json::parse(schema));
  ASSERT_FALSE(grammar) << schema.substr(0, 200);
  EXPECT_NE(grammar.error().message.find(why), std::string::npos)
      << schema.substr(0, 200) << ": " << grammar.error().message;
}

std::string repeated(size_t times, const std::string& part) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += (i == 0 ? "" : ",") + part;
  return out;
}

// Each takes minutes, gigabytes or the whole stack where nothing counts the work.
TEST(Schema, WorkIsBounded) {
  const std::string long_name(16'000, 'a');
  expect_too_much(R"({"properties": {")" + long_name + R"(": {}}, "additionalProperties": true})",
                  "more than 256 characters");
  std::string names;
  for (int i = 0; i < 1000; ++i)
    names += fmt::format("{}\"{}{}\": {{}}", i == 0 ? "" : ",", i, std::string(250, 'a'));
  expect_too_much(R"({"additionalProperties": true, "properties": {)" + names +
                      R"(}, "allOf": [{"required": ["b"]}, {"properties": {)" + names + "}}]}",
                  "too much work");
  std::string values;
  for (int i = 0; i < 2000; ++i) values += fmt::format("{}\"value {}\"", i == 0 ? "" : ",", i);
  expect_too_much(R"({"$defs": {"e": {"enum": [)" + values + R"(]}}, "allOf": [)" +
                      repeated(4000, R"({"$ref": "#/$defs/e"})") + "]}",
                  "too much work");
  std::string properties;
  for (int i = 0; i < 1000; ++i) properties += fmt::format("{}\"p{}\": {{}}", i == 0 ? "" : ",", i);
  expect_too_much(R"({"$defs": {"o": {"properties": {)" + properties + R"(}}}, "allOf": [)" +
                      repeated(1500, R"({"$ref": "#/$defs/o"})") + "]}",
                  "too much work");
  expect_too_much(R"({"const": ")" + std::string(60'000, 'a') + R"(", "pattern": "^(a|aa){0,5000}b$"})",
                  "too much work");
  expect_too_much(R"({"oneOf": [)" + repeated(150, R"({"enum": [)" + values + "]}") + "]}", "");
  std::string chain;
  for (int i = 0; i < 4000; ++i)
    chain += fmt::format(
        "{}\"d{}\": {{\"type\": \"array\", \"items\": {{\"$ref\": \"#/$defs/d{}\"}}, \"minItems\": 1}}",
        i == 0 ? "" : ",", i, i + 1);
  EXPECT_TRUE(schema_grammar(
      boost::json::parse(R"({"$defs": {)" + chain + R"(, "d4000": {}}, "$ref": "#/$defs/d0"})")));
}

TEST(Schema, LargeOnesOfEverydayUseAreFarFromTheBound) {
  std::string properties;
  for (int i = 0; i < 300; ++i) {
    properties += fmt::format(
        R"({}"property_number_{}": {{"type": "string", "enum": ["first", "second", "third"], "description": "one of three"}})",
        i == 0 ? "" : ",", i);
  }
  EXPECT_TRUE(schema_grammar(boost::json::parse(
      R"({"type": "object", "additionalProperties": {"type": "integer"}, "properties": {)" + properties +
      "}}")));
}

}  // namespace
}  // namespace quire::grammar
