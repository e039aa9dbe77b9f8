// tokenizer.model in both forms: fixtures, hostile files, what tokenizer_config.json changes.
#include "tokenize/sentencepiece.h"

#include <bit>
#include <fstream>
#include <random>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/data.h"
#include "tests/tokenize/tokenizer_files.h"
#include "tokenize/tiktoken.h"

namespace quire::tokenize {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Writes protobuf fields.
class Proto {
 public:
  Proto& number(uint32_t field, uint64_t value) {
    varint(uint64_t{field} << 3);
    varint(value);
    return *this;
  }
  Proto& real(uint32_t field, float value) {
    varint(uint64_t{field} << 3 | 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int i = 0; i < 4; ++i) out += static_cast<char>(bits >> (8 * i));
    return *this;
  }
  Proto& bytes(uint32_t field, std::string_view value) {
    varint(uint64_t{field} << 3 | 2);
    varint(value.size());
    out += value;
    return *this;
  }
  std::string out;

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
  }
};

enum Type : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

std::string piece(std::string_view text, float score, Type type = kNormal) {
  return Proto().bytes(1, text).real(2, score).number(3, type).out;
}

struct Model {
  std::vector<std::string> pieces;
  std::string trainer = Proto().number(3, 2).out;  // BPE
  std::string normalizer = Proto().number(4, 0).out;

  std::string bytes() const {
    Proto proto;
    for (const std::string& each : pieces) proto.bytes(1, each);
    return proto.bytes(2, trainer).bytes(3, normalizer).out;
  }
};

Model small_model() {
  return {{piece("<unk>", 0, kUnknown), piece("<s>", 0, kControl), piece("</s>", 0, kControl),
           piece("\u2581", -9), piece("a", -10), piece("b", -11), piece("ab", -1), piece("\u2581a", -2),
           piece("bb", -1), piece("<x>", 0, kUserDefined)}};
}

std::filesystem::path write(std::string_view name, std::string_view bytes, const std::filesystem::path& dir) {
  std::ofstream(dir / name, std::ios::binary | std::ios::trunc) << bytes;
  return dir / name;
}

std::unique_ptr<Tokenizer> load(const Model& model) {
  static const auto dir = test::temp_dir();
  return Tokenizer::load(write("tokenizer.model", model.bytes(), dir));
}

std::string error_of(const std::string& bytes) {
  static const auto dir = test::temp_dir();
  try {
    load_sentencepiece(bytes, dir / "tokenizer.model");
  } catch (const Error& error) {
    return error.what();
  }
  return "loaded";
}

TEST(SentencePiece, MergesByScore) {
  const auto tokenizer = load(small_model());
  // "ab" and "bb" have one score: the one further left is merged first.
  EXPECT_THAT(tokenizer->encode("abbb", false), ElementsAre(3, 6, 8));
  EXPECT_THAT(tokenizer->encode("bbb", false), ElementsAre(3, 8, 5));
  EXPECT_THAT(tokenizer->encode("aa", true), ElementsAre(1, 7, 4));
  EXPECT_THAT(tokenizer->encode("a<x>b", false), ElementsAre(7, 9, 5));
  EXPECT_THAT(tokenizer->encode("xyz</s>x", false), ElementsAre(3, 0, 2, 3, 0));
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{1, 7, 4, 6}, true), "aaab");
}

TEST(SentencePiece, UnusedPiecesAreTakenApart) {
  Model model = small_model();
  model.pieces[6] = piece("ab", -1, kUnused);
  EXPECT_THAT(load(model)->encode("ab", false), ElementsAre(3, 4, 5));
  EXPECT_THAT(load(model)->encode("bab", false), ElementsAre(3, 5, 4, 5));
}

TEST(SentencePiece, CharactersThatOnlyLongerPiecesHold) {
  Model model = small_model();
  model.pieces.push_back(piece("\u00e9b", -3));
  const auto tokenizer = load(model);
  EXPECT_THAT(tokenizer->encode("a\u00e9b", false), ElementsAre(7, 10));
  EXPECT_THAT(tokenizer->encode("a\u00e9\u00e9x", false), ElementsAre(7, 0));
}

TEST(SentencePiece, ConfigSaysWhatIsAdded) {
  const auto dir = test::temp_dir();
  write("tokenizer.model", small_model().bytes(), dir);
  EXPECT_THAT(Tokenizer::load(dir)->encode("a", true), ElementsAre(1, 7));
  write("tokenizer_config.json", R"({"add_bos_token": false, "add_eos_token": true, "legacy": false,
    "added_tokens_decoder": {"11": {"content": "<end>"}, "10": {"content": "<say>", "special": true}}})",
        dir);
  const auto tokenizer = Tokenizer::load(dir);
  EXPECT_THAT(tokenizer->encode("a<say>a<end>", true), ElementsAre(7, 10, 4, 11, 2));
  EXPECT_TRUE(tokenizer->is_special(10));
  EXPECT_FALSE(tokenizer->is_special(11));
  EXPECT_EQ(tokenizer->vocab_size(), 12u);
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {}}})", dir);
  EXPECT_THROW(Tokenizer::load(dir), Error);
}

TEST(SentencePiece, OlderFilesSayWhatIsAdded) {
  const auto dir = test::temp_dir();
  write("tokenizer.model", small_model().bytes(), dir);
  write("added_tokens.json", R"({"<end>": 11, "<say>": 10})", dir);
  write("special_tokens_map.json", R"({"additional_special_tokens": ["<say>"]})", dir);
  const auto tokenizer = Tokenizer::load(dir);
  EXPECT_THAT(tokenizer->encode("a<say>a<end>", false), ElementsAre(7, 10, 7, 11));
  EXPECT_TRUE(tokenizer->is_special(10));
  EXPECT_FALSE(tokenizer->is_special(11));
  write("added_tokens.json", R"({"<end>": -1})", dir);
  EXPECT_THROW(Tokenizer::load(dir), Error);
  // Of no weight where tokenizer_config.json has them.
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"10": {"content": "<say>"}}})", dir);
  EXPECT_FALSE(Tokenizer::load(dir)->find_token("<end>"));
}

TEST(SentencePiece, AddedTokensBeginAndEnd) {
  const auto dir = test::temp_dir();
  write("tokenizer.model", small_model().bytes(), dir);
  write("tokenizer_config.json", R"({"bos_token": "<say>", "eos_token": {"content": "<end>"},
    "add_eos_token": true, "added_tokens_decoder": {"11": {"content": "<end>"}, "10": {"content": "<say>"}}})",
        dir);
  EXPECT_THAT(Tokenizer::load(dir)->encode("a", true), ElementsAre(10, 7, 11));
  write("tokenizer_config.json", R"({"bos_token": "<other>"})", dir);
  testing::internal::CaptureStderr();
  EXPECT_THAT(Tokenizer::load(dir)->encode("a", true), ElementsAre(1, 7));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("bos_token: '<other>' is not a token"));
}

TEST(SentencePiece, BrokenFilesAreNamed) {
  const auto error = [](const auto& change) {
    Model model = small_model();
    change(model);
    return error_of(model.bytes());
  };
  EXPECT_THAT(error([](Model& m) { m.pieces[5] = piece("a", 0); }),
              HasSubstr("tokenizer.model: piece 5 'a': the same text as an earlier piece"));
  EXPECT_THAT(error([](Model& m) { m.pieces[0] = piece("?", 0); }), HasSubstr("type UNKNOWN"));
  EXPECT_THAT(error([](Model& m) { m.pieces[1] = piece("?", 0, kUnknown); }),
              HasSubstr("second unknown piece"));
  EXPECT_THAT(error([](Model& m) { m.pieces[4] = piece("", 0); }), HasSubstr("a piece is empty"));
  EXPECT_THAT(error([](Model& m) { m.pieces[4] = piece("\xFF", 0); }), HasSubstr("not UTF-8"));
  EXPECT_THAT(error([](Model& m) { m.pieces[4] = piece("a", std::numeric_limits<float>::quiet_NaN()); }),
              HasSubstr("score is not a number"));
  EXPECT_THAT(error([](Model& m) { m.pieces[4] = piece("a", 0, static_cast<Type>(7)); }),
              HasSubstr("unknown type 7"));
  EXPECT_THAT(error([](Model& m) { m.pieces[4] = piece("<0x61>", 0, kByte); }),
              HasSubstr("trainer_spec.byte_fallback is false"));
  EXPECT_THAT(error([](Model& m) {
                m.trainer = Proto().number(3, 2).number(35, 1).out;
                m.pieces[4] = piece("<0xG1>", 0, kByte);
              }),
              HasSubstr("not in the form of a byte piece"));
  EXPECT_THAT(error([](Model& m) { m.trainer = Proto().number(3, 2).number(35, 1).out; }),
              HasSubstr("0 of the 256 byte pieces"));
  EXPECT_THAT(error([](Model& m) { m.trainer = Proto().number(3, 3).out; }),
              HasSubstr("WORD is not supported"));
  EXPECT_THAT(error([](Model& m) { m.trainer = Proto().number(3, 9).out; }),
              HasSubstr("unknown model type 9"));
  EXPECT_THAT(error([](Model& m) { m.trainer = Proto().bytes(3, "x").out; }), HasSubstr("at byte"));
  EXPECT_THAT(error([](Model& m) { m.normalizer = Proto().bytes(2, "abc").out; }),
              HasSubstr("normalizer_spec.precompiled_charsmap: too short"));
  EXPECT_THAT(error([](Model& m) { m.normalizer = Proto().bytes(2, std::string("\x7F\0\0\0abc", 7)).out; }),
              HasSubstr("longer than the data"));
  EXPECT_THAT(error([](Model& m) { m.trainer += '\x0A'; }), HasSubstr("at byte"));
}

TEST(SentencePiece, RulesThatGoInCircles) {
  // From the root by an 'a' back to the root: a rule for every number of them, and the work quadratic.
  std::vector<uint32_t> units(512);
  units[0] = 256U << 10;
  units[256 ^ 'a'] = uint32_t{'a'} << 10 | 'a';
  std::string charsmap = {0, 8, 0, 0};
  for (const uint32_t unit : units) {
    for (int i = 0; i < 4; ++i) charsmap += static_cast<char>(unit >> (8 * i));
  }
  Model model = small_model();
  model.normalizer = Proto().bytes(2, charsmap).out;
  EXPECT_THAT(error_of(model.bytes()),
              HasSubstr("normalizer_spec.precompiled_charsmap: a rule of more than 256 bytes"));
}

/// Loads what may be broken and, if it loads, uses it.
void load_and_use(const std::string& bytes, const std::filesystem::path& where) {
  try {
    const auto tokenizer = looks_like_tiktoken(bytes)
                               ? load_tiktoken(bytes, where, {"\\p{L}+|.", true, "", {"<s>"}})
                               : load_sentencepiece(bytes, where);
    const auto ids = tokenizer->encode("ab \uFF41 <s> xx\n a\u0301<x>aaaa \xFF\tthe", true);
    for (const TokenId id : ids) {
      EXPECT_GE(id, 0);
      EXPECT_LT(static_cast<size_t>(id), tokenizer->vocab_size());
    }
    EXPECT_EQ(test::decode_in_pieces(*tokenizer, ids, false), tokenizer->decode(ids, false));
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(": "));
  }
}

TEST(SentencePiece, TruncatedAndFlippedFiles) {
  const auto where = test::temp_dir() / "tokenizer.model";
  std::mt19937 rng(6);
  for (const char* name : {"trained_bpe.model", "trained_unigram.model"}) {
    const std::string good = read_file(std::string("tests/tokenize/fixtures/") + name);
    for (size_t size = 0; size < good.size(); size += 1 + size / 16)
      load_and_use(good.substr(0, size), where);
    for (int round = 0; round < 400; ++round) {
      std::string bad = good;
      // The charsmap is at the end; let it have its share.
      for (uint32_t flips = 1 + rng() % 3; flips > 0; --flips) {
        const size_t place = rng() % 2 == 0 ? rng() % bad.size() : bad.size() - 1 - rng() % 900;
        bad[place] = static_cast<char>(rng() % 4 == 0 ? rng() % 4 : rng());
      }
      load_and_use(bad, where);
    }
  }
}

std::string small_ranks() {
  const auto line = [](std::string_view base64, size_t rank) { return fmt::format("{} {}\n", base64, rank); };
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string text = {kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
    out += line(text, byte);
  }
  return out + line("YWI=", 256) + line("YmI=", 257) + line("YWFhYQ==", 258);  // ab, bb, aaaa
}

TEST(Tiktoken, MergesByRankOrWhole) {
  const auto dir = test::temp_dir();
  const TiktokenFamily family{"\\p{L}+|\\s+|.", false, "<s>", {"<s>", "</s>"}};
  const auto tokenizer = load_tiktoken(small_ranks(), dir / "tokenizer.model", family);
  EXPECT_THAT(tokenizer->encode("abb", true), ElementsAre(259, 256, 'b'));
  EXPECT_THAT(tokenizer->encode("aaaa", false), ElementsAre(258));  // no two tokens make it, but it is one
  EXPECT_THAT(tokenizer->encode("aaaaa", false), ElementsAre('a', 'a', 'a', 'a', 'a'));
  EXPECT_THAT(tokenizer->encode("b</s>\u00e9", false), ElementsAre('b', 260, 0xC3, 0xA9));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("ab\u00e9 \U0001F600", false), true), "ab\u00e9 \U0001F600");
  EXPECT_EQ(tokenizer->token_text(256), "ab");
}

TEST(Tiktoken, BrokenFilesAreNamed) {
  const auto error = [](const std::string& bytes) -> std::string {
    try {
      load_tiktoken(bytes, "ranks", {"x", false, "", {}});
    } catch (const Error& failure) {
      return failure.what();
    }
    return "loaded";
  };
  EXPECT_THAT(error("YQ== 0\nYQ\n"), HasSubstr("ranks: line 2: a token in base64, a space and a rank"));
  EXPECT_THAT(error("Y 0\n"), HasSubstr("line 1: the token is not base64"));
  EXPECT_THAT(error("YQ== x\n"), HasSubstr("line 1: the rank is not a number"));
  EXPECT_THAT(error("YQ== 0\nYg== 1000000000\n"), HasSubstr("line 2: rank 1000000000 where 1 was expected"));
  EXPECT_THAT(error("YQ== 0\nYQ== 1\n"), HasSubstr("rank 1: the same token as an earlier one"));
  EXPECT_THAT(error("YQ== 0\n"), HasSubstr("no token for the byte 0"));
  const auto dir = test::temp_dir();
  try {
    Tokenizer::load(write("tokenizer.model", small_ranks(), dir));
    ADD_FAILURE() << "loaded";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("tokenizer.model: 259 tiktoken ranks: no known model family"));
  }
}

TEST(Tiktoken, FlippedFiles) {
  std::mt19937 rng(7);
  const std::string good = small_ranks();
  for (int round = 0; round < 300; ++round) {
    std::string bad = good;
    bad[rng() % bad.size()] = static_cast<char>(rng());
    load_and_use(bad, "ranks");
  }
}

TEST(Tokenizer, FindsItsFile) {
  const auto dir = test::temp_dir();
  EXPECT_THROW(Tokenizer::load(dir), Error);
  write("tokenizer.model", small_model().bytes(), dir);
  EXPECT_EQ(Tokenizer::load(dir)->vocab_size(), 10u);
  write("tokenizer.json", json::serialize(test::small_byte_level()), dir);
  EXPECT_GT(Tokenizer::load(dir)->vocab_size(), 10u);
  try {
    Tokenizer::load(write("page", "<html></html>\n", dir));
    ADD_FAILURE() << "loaded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("page: neither a SentencePiece model nor tiktoken ranks nor JSON"));
  }
  // Whatever the name, what begins as JSON is.
  EXPECT_GT(Tokenizer::load(write("vocabulary", "\n\n " + json::serialize(test::small_byte_level()), dir))
                ->vocab_size(),
            10u);
}

TEST(TrainedTokenizers, EqualTheirTrainers) {
  const std::filesystem::path dir = "tests/tokenize/fixtures";
  const json::value file = read_json_file(dir / "trained_tokenizers.json");
  EXPECT_EQ(file.as_object().size(), 4u);
  for (const auto& [name, rows] : file.as_object()) {
    SCOPED_TRACE(name);
    const auto tokenizer = Tokenizer::load(dir / std::string(name));
    EXPECT_GE(rows.as_array().size(), 60u);
    for (const json::value& row : rows.as_array()) {
      const std::string text(row.at(0).as_string());
      const auto ids = test::ids_of(row.at(1));
      EXPECT_EQ(tokenizer->encode(text, true), ids) << text;
      EXPECT_EQ(test::decode_in_pieces(*tokenizer, ids, true), tokenizer->decode(ids, true));
    }
  }
}

}  // namespace
}  // namespace quire::tokenize
