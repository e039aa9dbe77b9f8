// Files that are broken or hostile: a clear Error, or a tokenizer that works; never a crash.
#include <fstream>
#include <random>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/data.h"
#include "tests/tokenize/tokenizer_files.h"

namespace quire::tokenize {
namespace {

using test::load_error;
using test::load_tokenizer;
using testing::HasSubstr;

json::value parsed_file(std::string_view text) { return parse_json(text, "test"); }

json::object tiny() {
  return parsed_file(R"({
    "version": "1.0",
    "added_tokens": [{"id": 5, "content": "<s>", "special": true, "normalized": false}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Replace",
      "pattern": {"Regex": "x+"}, "content": "y"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+"},
      "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "u", "byte_fallback": true,
      "vocab": {"a": 0, "b": 1, "ab": 2, "u": 3, "<0x0A>": 4}, "merges": ["a b", ["a", "b"]]}
  })")
      .as_object();
}

/// The error of `tiny` with one thing changed.
template <class Change>
std::string error_with(const Change& change) {
  json::object file = tiny();
  change(file);
  return load_error(json::serialize(file));
}

/// Sets what "a/0/b" points to.
void put(json::object& object, std::string_view pointer, json::value value);
void put(json::value& place, std::string_view pointer, json::value value) {
  if (pointer.empty()) {
    place = std::move(value);
  } else if (auto* array = place.if_array()) {
    put(array->at(static_cast<size_t>(pointer[0] - '0')), pointer.substr(std::min<size_t>(2, pointer.size())),
        std::move(value));
  } else {
    put(place.as_object(), pointer, std::move(value));
  }
}
void put(json::object& object, std::string_view pointer, json::value value) {
  const size_t end = std::min(pointer.find('/'), pointer.size());
  put(object[pointer.substr(0, end)], pointer.substr(std::min(end + 1, pointer.size())), std::move(value));
}

TEST(TokenizerInput, TinyLoads) {
  const auto tokenizer = load_tokenizer(tiny());
  EXPECT_EQ(tokenizer->encode("ab<s>a\n!", true), (std::vector<TokenId>{5, 2, 5, 0, 3, 3}));
}

TEST(TokenizerInput, ErrorsNameFileAndKey) {
  const auto set = [](std::string_view pointer, std::string_view value) {
    return error_with([&](json::object& file) { put(file, pointer.substr(1), parsed_file(value)); });
  };
  const auto expect = [](const std::string& error, std::string_view key, std::string_view what) {
    EXPECT_THAT(error, HasSubstr("tokenizer.json: key '" + std::string(key) + "'"));
    EXPECT_THAT(error, HasSubstr(std::string(what)));
  };
  expect(set("/model/type", R"("Markov")"), "model.type", "'Markov' is not supported");
  expect(set("/model", "[]"), "model", "object was expected");
  expect(set("/model", "null"), "model", "missing");
  expect(set("/model/vocab", "[]"), "model.vocab", "object was expected");
  expect(set("/model/vocab/b", "-1"), "model.vocab.b", "out of range");
  expect(set("/model/vocab/b", "2000000000"), "model.vocab.b", "out of range");
  expect(set("/model/vocab/b", R"("1")"), "model.vocab.b", "integer");
  expect(set("/model/merges", R"({"a": "b"})"), "model.merges", "array");
  expect(set("/model/merges/1", R"(["a"])"), "model.merges[1]", "two strings");
  expect(set("/model/merges/0", R"("a b c")"), "model.merges[0]", "two tokens");
  expect(set("/model/merges/0", R"("a z")"), "model.merges", "'z' is not in the vocabulary");
  expect(set("/model/merges/0", R"("b a")"), "model.merges", "'ba' is not in the vocabulary");
  expect(set("/model/dropout", "0.1"), "model.dropout", "not supported");
  expect(set("/normalizer/normalizers/0/type", R"("NFX")"), "normalizer.normalizers[0].type",
         "not supported");
  expect(set("/normalizer/normalizers/1/pattern/Regex", R"("a(b")"),
         "normalizer.normalizers[1].pattern.Regex", "bad pattern");
  expect(set("/normalizer/normalizers/1/pattern", "{}"), "normalizer.normalizers[1].pattern", "neither");
  expect(set("/normalizer/normalizers", "3"), "normalizer.normalizers", "array");
  expect(set("/pre_tokenizer/pretokenizers/0/behavior", R"("Merged")"),
         "pre_tokenizer.pretokenizers[0].behavior", "unknown behavior");
  expect(set("/pre_tokenizer/pretokenizers/1/type", R"("UnicodeScripts")"),
         "pre_tokenizer.pretokenizers[1].type", "not supported");
  expect(set("/pre_tokenizer/pretokenizers/1", "7"), "pre_tokenizer.pretokenizers[1]", "object");
  expect(set("/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})"), "pre_tokenizer.replacement",
         "one character");
  expect(set("/post_processor/special_tokens/<s>/ids/0", "6"), "post_processor.special_tokens.<s>.ids",
         "below 6");
  expect(set("/post_processor/single/0/SpecialToken/id", R"("<z>")"), "post_processor.special_tokens.<z>",
         "missing");
  expect(set("/post_processor/type", R"("Other")"), "post_processor.type", "not supported");
  expect(set("/decoder/decoders/0/type", R"("CTC")"), "decoder.decoders[0].type", "not supported");
  expect(set("/decoder/decoders/2/start", "-1"), "decoder.decoders[2].start", "out of range");
  expect(set("/added_tokens/0", "{}"), "added_tokens[0].content", "missing");
  expect(set("/version", R"("2.0")"), "version", "not supported");
}

TEST(TokenizerInput, NoJsonNoFile) {
  EXPECT_THAT(load_error("{\"model\": "), HasSubstr("tokenizer.json: at byte 10: not valid JSON"));
  EXPECT_THAT(load_error(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(load_error("[1]"), HasSubstr("object was expected"));
  EXPECT_THAT(load_error("{\"a\": \"\xFF\"}"), HasSubstr("at byte 7: not valid UTF-8"));
  EXPECT_THAT(load_error(std::string(100'000, '[')), HasSubstr("not valid JSON"));
  EXPECT_THROW(Tokenizer::load("/nonexistent/tokenizer.json"), Error);
  EXPECT_THROW(Tokenizer::load(test::temp_dir()), Error);
}

// A merge whose result is one of its parts goes in a circle in the vocabulary, but never in a text, which
// gets shorter with each.
TEST(TokenizerInput, TokensOfTheFilesBeside) {
  const auto dir = test::temp_dir();
  const auto write = [&](const char* name, std::string_view text) {
    std::ofstream(dir / name, std::ios::binary) << text;
  };
  write("tokenizer.json", json::serialize(tiny()));
  EXPECT_FALSE(Tokenizer::load(dir)->find_token("<e>"));
  write("added_tokens.json", R"({"<s>": 5, "<e>": 6})");
  EXPECT_EQ(Tokenizer::load(dir)->find_token("<e>"), 6);
  write("tokenizer_config.json", R"({"eos_token": "<d>", "added_tokens_decoder": {
    "5": {"content": "<s>", "special": false}, "6": {"content": "<d>", "special": true}}})");
  const auto tokenizer = Tokenizer::load(dir);
  EXPECT_EQ(tokenizer->find_token("<d>"), 6);
  EXPECT_FALSE(tokenizer->find_token("<e>"));
  EXPECT_TRUE(tokenizer->is_special(5));  // as tokenizer.json says
  EXPECT_TRUE(tokenizer->is_special(6));
  EXPECT_EQ(tokenizer->encode("a<d>", true), (std::vector<TokenId>{5, 0, 6}));
  // A file that is given by its name stands alone.
  EXPECT_FALSE(Tokenizer::load(dir / "tokenizer.json")->find_token("<d>"));
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<d>"}}})");
  EXPECT_THROW(Tokenizer::load(dir), Error);
  write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  EXPECT_THAT([&] { Tokenizer::load(dir); }, testing::ThrowsMessage<Error>(HasSubstr("git lfs pull")));
}

TEST(TokenizerInput, MergesThatGoInCircles) {
  const auto tokenizer =
      load_tokenizer(parsed_file(R"({"model": {"type": "BPE", "continuing_subword_prefix": "##",
    "vocab": {"a": 0, "##": 1, "##a": 2, "##b": 3, "ab": 4, "##aa": 5, "aa": 6},
    "merges": ["a ##", "##a ##", "## ##", "##a ##a", "a ##a", "a ##b"]}})"));
  EXPECT_EQ(tokenizer->encode("ab", false), (std::vector<TokenId>{4}));
  EXPECT_EQ(tokenizer->encode("aaab", false), (std::vector<TokenId>{0, 5, 3}));
  const auto empty = load_tokenizer(parsed_file(R"({"model": {"type": "BPE",
    "vocab": {"": 0, "a": 1, "b": 2, "ab": 3}, "merges": [["", "a"], ["a", ""], ["", ""], ["a", "b"]]}})"));
  EXPECT_EQ(empty->encode("aab", false), (std::vector<TokenId>{1, 3}));
}

/// What loading `text` writes to standard error.
std::string warnings_of(const std::string& text) {
  testing::internal::CaptureStderr();
  load_tokenizer(text);
  return testing::internal::GetCapturedStderr();
}

// As the `tokenizers` package does, which loads both; but not in silence.
TEST(TokenizerInput, EntriesThatDoubleOthersAreNamed) {
  const auto file = [](std::string_view vocab, std::string_view more = "") {
    return fmt::format(R"({{"model": {{"type": "BPE", {} "vocab": {{{}}}, "merges": ["a b"]}}}})", more,
                       vocab);
  };
  EXPECT_EQ(warnings_of(file(R"("a": 0, "b": 1, "ab": 2)")), "");
  const std::string twice = file(R"("a": 0, "b": 1, "ab": 2, "\u0061" : 3)");
  EXPECT_THAT(warnings_of(twice), HasSubstr("tokenizer.json: key 'model.vocab.a': occurs twice"));
  EXPECT_EQ(load_tokenizer(twice)->encode("aab", false), (std::vector<TokenId>{3, 2}));
  EXPECT_THAT(warnings_of(file(R"("a": 0, "b": 1, "ab": 2)", R"("type": "BPE", "vocab": [],)")),
              HasSubstr("key 'model.type': occurs twice; the last one counts (2 such keys)"));
  EXPECT_THAT(warnings_of(R"({"added_tokens": [{"id": 1, "content": "x"}, {"id": 2, "content": "y", "id": 2}],
      "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})"),
              HasSubstr("key 'added_tokens[1].id': occurs twice"));
  const std::string alias = file(R"("a": 0, "b": 1, "ab": 1, "c": 0)");
  EXPECT_THAT(warnings_of(alias), HasSubstr("tokenizer.json: key 'model.vocab.ab': has the id 1 of 'b', for "
                                            "which it is decoded (2 such entries)"));
  EXPECT_EQ(load_tokenizer(alias)->encode("ab", false), (std::vector<TokenId>{1}));
  // Strings that only look like keys.
  EXPECT_EQ(
      warnings_of(file(R"("a": 0, "b": 1, "ab": 2, "\"a\":" : 3, "{\"": 4)", R"("x": ["y", "y", "a:"],)")),
      "");
}

// The ids are those of the `tokenizers` package, which panics where a token of the last file ends before the
// one in front of it.
TEST(TokenizerInput, TokensThatTakeTheSameWhiteSpace) {
  const auto expect = [](std::string_view added, std::string_view text, const std::vector<TokenId>& ids) {
    const std::string file = fmt::format(R"({{"added_tokens": [{}],
        "model": {{"type": "BPE", "unk_token": "u", "vocab": {{"u": 0, "a": 1, " ": 2}}, "merges": []}}}})",
                                         added);
    EXPECT_EQ(load_tokenizer(file)->encode(text, false), ids) << added << '\n' << text;
  };
  const auto token = [](int id, std::string_view content, bool left, bool right) {
    return fmt::format(R"({{"id": {}, "content": "{}", "lstrip": {}, "rstrip": {}, "normalized": false}})",
                       id, content, left, right);
  };
  const std::string both = token(3, "  ", true, true);
  expect(both, "a    a", {1, 3, 1});
  expect(both, "a     a", {1, 3, 1});
  expect(both, "    ", {3});
  expect(both, " \n  \n a", {3, 1});
  const std::string right = token(3, "  ", false, true);
  expect(right, "a    a", {1, 3, 3, 1});
  expect(right, " \n  \n a", {2, 0, 3, 1});
  const std::string left = token(3, "  ", true, false);
  expect(left, "a     a", {1, 3, 3, 2, 1});
  expect(left, " \n  \n a", {3, 0, 2, 1});
  const std::string two = right + ", " + token(4, "\\n", true, false);
  expect(two, "a  \na", {1, 3, 1});
  expect(two, "a  \n a", {1, 3, 1});
}

TEST(TokenizerInput, DeepNestingIsRefused) {
  std::string file = R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "normalizer": )";
  constexpr int kLevels = 2000;
  for (int i = 0; i < kLevels; ++i) file += R"({"type": "Sequence", "normalizers": [)";
  file += R"({"type": "NFC"})";
  for (int i = 0; i < kLevels; ++i) file += "]}";
  EXPECT_THAT(load_error(file + "}"), HasSubstr("not valid JSON"));
}

TEST(TokenizerInput, PatternsThatBacktrackWithoutEndAreStopped) {
  json::object file = tiny();
  file["normalizer"] = parsed_file(R"({"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""})");
  const auto tokenizer = load_tokenizer(file);
  EXPECT_THROW(tokenizer->encode(std::string(60, 'a') + "!", false), Error);
}

/// Loads what may be broken and, if it loads, uses it.
void load_and_use(const std::string& file) {
  try {
    const auto tokenizer = load_tokenizer(file);
    const auto ids = tokenizer->encode("ab <s> xx\n a\u0301<0x0A>aaaa \xFF", true);
    for (const TokenId id : ids) {
      EXPECT_GE(id, 0);
      EXPECT_LT(static_cast<size_t>(id), tokenizer->vocab_size());
      tokenizer->token_bytes(id);
    }
    EXPECT_EQ(test::decode_in_pieces(*tokenizer, ids, false), tokenizer->decode(ids, false));
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(": ")) << file;
  }
}

TEST(TokenizerInput, TruncatedFiles) {
  const std::string good = json::serialize(tiny());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(load_error(good.substr(0, size)), HasSubstr("not valid JSON"));
  }
}

TEST(TokenizerInput, FlippedBytes) {
  std::mt19937 rng(3);
  const std::string good = json::serialize(tiny());
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (uint32_t flips = 1 + rng() % 2; flips > 0; --flips) {
      static constexpr std::string_view kLikely = "\"\\{}[]:,0123456789-e.aAbLns<>+*?(){}|^$";
      char& byte = bad[rng() % bad.size()];
      byte = rng() % 2 == 0 ? static_cast<char>(rng()) : kLikely[rng() % kLikely.size()];
    }
    load_and_use(bad);
  }
}

/// Replaces a random value in the tree by another kind of value.
void disturb(json::value& value, std::mt19937& rng) {
  static const json::value kOthers = parsed_file(
      R"([null, true, -1, 1e300, 99999999999, "", "a", "\u2581", [], {}, [[]], "Sequence", {"type": "Fuse"}])");
  json::value* target = &value;
  while (true) {
    json::value* child = nullptr;
    if (auto* object = target->if_object(); object != nullptr && !object->empty()) {
      child = &(object->begin() + static_cast<ptrdiff_t>(rng() % object->size()))->value();
    } else if (auto* array = target->if_array(); array != nullptr && !array->empty()) {
      child = &(*array)[rng() % array->size()];
    }
    if (child == nullptr || rng() % 6 == 0) break;
    target = child;
  }
  *target = kOthers.as_array()[rng() % kOthers.as_array().size()];
}

TEST(TokenizerInput, ValuesOfOtherKinds) {
  std::mt19937 rng(4);
  for (int round = 0; round < 1500; ++round) {
    json::value file = tiny();
    disturb(file, rng);
    load_and_use(json::serialize(file));
  }
}

}  // namespace
}  // namespace quire::tokenize
