#include "tokenize/tokenizer.h"

#include <atomic>
#include <ctime>
#include <random>
#include <thread>

#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "tests/support/data.h"
#include "tests/support/sanitized.h"
#include "tests/tokenize/tokenizer_files.h"

namespace quire::tokenize {
namespace {

using test::decode_in_pieces;
using test::load_tokenizer;

json::value json_of(std::string_view text) { return parse_json(text, "test"); }

// Far above what the tests below take, far below what anything quadratic would.
constexpr double kSecondsAllowed = test::kSanitized ? 60 : 5;

/// Of this process; unlike the time on the wall it does not depend on what else the machine does.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::string random_text(std::mt19937& rng, size_t pieces) {
  static const std::vector<std::string> kPieces = {
      "hello",   " ", "  ", "the", " fox", "123",      "\n",           "é",       "日本", "😀", "<s>", "</s>",
      "<|end|>", "▁", "a",  "'s",  "\xFF", "\xE2\x96", "\xF0\x9F\x98", "e\u0301", "Ω",    "."};
  std::string text;
  for (size_t i = 0; i < pieces; ++i) text += kPieces[rng() % kPieces.size()];
  return text;
}

TEST(Tokenizer, BrokenUtf8BecomesReplacementCharacters) {
  for (const auto& file : {test::small_byte_level(), test::small_sentencepiece()}) {
    const auto tokenizer = load_tokenizer(file);
    EXPECT_EQ(tokenizer->encode("a\xFF"
                                "b\xE2\x82",
                                false),
              tokenizer->encode("a\uFFFDb\uFFFD", false));
  }
}

TEST(Tokenizer, KnowsItsEntries) {
  const auto tokenizer = load_tokenizer(test::small_sentencepiece());
  EXPECT_EQ(tokenizer->find_token("<s>"), 1);
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_FALSE(tokenizer->is_special(*tokenizer->find_token("<0x0A>")));
  EXPECT_EQ(tokenizer->token_text(*tokenizer->find_token("<0x0A>")), "<0x0A>");
  EXPECT_EQ(tokenizer->token_bytes(*tokenizer->find_token("<0x0A>")), "\n");
  EXPECT_EQ(tokenizer->token_bytes(*tokenizer->find_token("<0xE2>")), "\xE2");
  EXPECT_EQ(tokenizer->token_bytes(*tokenizer->find_token("▁he")), " he");
  EXPECT_EQ(tokenizer->find_token("no such entry"), std::nullopt);
  const auto past = static_cast<TokenId>(tokenizer->vocab_size());
  EXPECT_EQ(tokenizer->token_text(past), "");
  EXPECT_EQ(tokenizer->token_text(-1), "");
  EXPECT_EQ(tokenizer->token_bytes(past), "");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{past, -5, INT32_MAX}, false), "");

  const auto bytes = load_tokenizer(test::small_byte_level());
  EXPECT_EQ(bytes->token_bytes(*bytes->find_token("Ġthe")), " the");
}

TEST(Tokenizer, AddedTokensAreNumberedAsTheReferenceDoes) {
  json::object file = test::small_byte_level();
  const auto entries = static_cast<int64_t>(file.at("model").at("vocab").as_object().size());
  const json::value added = json_of(R"([{"id": 7, "content": "<x>"}, {"id": 9, "content": "a"}])");
  const TokenId known = *load_tokenizer(file)->find_token("a");
  file["added_tokens"] = added;
  const auto tokenizer = load_tokenizer(file);
  EXPECT_EQ(tokenizer->find_token("<x>"), entries);  // not 7: that id has an entry
  EXPECT_EQ(tokenizer->find_token("a"), known);
  EXPECT_EQ(tokenizer->vocab_size(), static_cast<size_t>(entries) + 1);
}

TEST(Tokenizer, ThreadsMayShareIt) {
  const auto tokenizer = load_tokenizer(test::small_byte_level());
  std::mt19937 rng(5);
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> expected;
  for (int i = 0; i < 200; ++i) {
    texts.push_back(random_text(rng, 40));
    expected.push_back(tokenizer->encode(texts.back(), true));
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); ++i) {
        if (tokenizer->encode(texts[i], true) != expected[i]) ++wrong;
        if (decode_in_pieces(*tokenizer, expected[i], false) != tokenizer->decode(expected[i], false))
          ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// 0.2 s each on the machine this was written on.
TEST(Tokenizer, LongMonotonousTextsTakeLinearTime) {
  json::object nfc = test::small_byte_level();
  nfc["normalizer"] = json_of(R"({"type": "NFC"})");
  std::string marks = "a";
  for (int i = 0; i < 100'000; ++i) marks += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::string mega(1'000'000, 'a');
  std::string alternating;
  while (alternating.size() < 1'000'000) alternating += "he";
  std::string stars;
  while (stars.size() < 1'000'000) stars += "<|en";
  const auto byte_level = load_tokenizer(test::small_byte_level());
  const auto sentencepiece = load_tokenizer(test::small_sentencepiece());
  const auto normalizing = load_tokenizer(nfc);
  const auto scored = Tokenizer::load("tests/tokenize/fixtures/trained_bpe.model");
  const auto unigram = Tokenizer::load("tests/tokenize/fixtures/trained_unigram.model");
  const auto word_piece = Tokenizer::load("tests/tokenize/fixtures/trained_wordpiece.json");
  std::string letters;
  for (std::mt19937 rng(2); letters.size() < 1'000'000;) letters += static_cast<char>('a' + rng() % 26);
  const auto demo = Tokenizer::load(test::demo_model_dir());
  for (const Tokenizer* tokenizer : {byte_level.get(), sentencepiece.get(), demo.get(), normalizing.get(),
                                     scored.get(), unigram.get(), word_piece.get()}) {
    for (const std::string& text : {mega, alternating, stars, marks, letters, std::string(1'000'000, ' '),
                                    std::string(1'000'000, '\n'), std::string(1'000'000, '\xFF')}) {
      const double start = cpu_seconds();
      const auto ids = tokenizer->encode(text, false);
      const double took = cpu_seconds() - start;
      EXPECT_TRUE(!ids.empty() || text[0] <= ' ') << "white space may be dropped, nothing else";
      EXPECT_LT(took, kSecondsAllowed) << text.substr(0, 8);
    }
  }
}

const json::array& decoders() {
  static const json::value all = json_of(R"([
    null,
    {"type": "ByteLevel"},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
    {"type": "WordPiece", "prefix": "▁", "cleanup": true},
    {"type": "BPEDecoder", "suffix": "e"},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"},
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "Replace", "pattern": {"Regex": "[ae▁]+"}, "content": ""},
    {"type": "Strip", "content": "▁", "start": 1, "stop": 1},
    {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 2, "stop": 3}]},
    {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Metaspace", "replacement": "▁"}]},
    {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Replace", "pattern": {"Regex": "e+"}, "content": "E"}, {"type": "ByteLevel"}]}
  ])");
  return all.as_array();
}

TEST(Detokenizer, PiecesJoinToTheWholeForEveryDecoder) {
  std::mt19937 rng(11);
  for (const auto& base : {test::small_byte_level(), test::small_sentencepiece()}) {
    for (const json::value& decoder : decoders()) {
      SCOPED_TRACE(json::serialize(decoder));
      json::object file = base;
      file["decoder"] = decoder;
      const auto tokenizer = load_tokenizer(file);
      const auto size = static_cast<TokenId>(tokenizer->vocab_size());
      for (int round = 0; round < 300; ++round) {
        std::vector<TokenId> ids;
        if (round % 2 == 0) {
          ids = tokenizer->encode(random_text(rng, rng() % 12), true);
        } else {
          // Low ids are special and byte tokens, so runs of bytes are common.
          for (size_t i = rng() % 16; i > 0; --i) {
            ids.push_back(
                static_cast<TokenId>(rng() % (rng() % 2 == 0 ? 260 : static_cast<uint32_t>(size) + 2)));
          }
        }
        const bool skip = rng() % 2 == 0;
        ASSERT_EQ(decode_in_pieces(*tokenizer, ids, skip), tokenizer->decode(ids, skip));
      }
    }
  }
}

TEST(Detokenizer, TextComesAsSoonAsItIsFinal) {
  const auto byte_level = load_tokenizer(test::small_byte_level());
  Detokenizer bytes(*byte_level, true);
  std::string text;
  for (const TokenId id : byte_level->encode("hello the 😀", false)) text += bytes.push(id);
  EXPECT_EQ(text, "hello the 😀");
  EXPECT_EQ(bytes.flush(), "");

  const auto sentencepiece = load_tokenizer(test::small_sentencepiece());
  const auto id = [&](std::string_view name) { return *sentencepiece->find_token(name); };
  Detokenizer pieces(*sentencepiece, true);
  EXPECT_EQ(pieces.push(id("<s>")), "");
  EXPECT_EQ(pieces.push(id("▁he")), "he");  // without the space at the start
  EXPECT_EQ(pieces.push(id("▁he")), " he");
  EXPECT_EQ(pieces.push(id("<0xC3>")), "");
  EXPECT_EQ(pieces.push(id("<0xA9>")), "");  // another byte could still break the run
  EXPECT_EQ(pieces.push(id("▁")), "é ");
  EXPECT_EQ(pieces.push(id("<0xC3>")), "");
  EXPECT_EQ(pieces.push(id("<0xC3>")), "\uFFFD\uFFFD");
  EXPECT_EQ(pieces.push(id("<0xA9>")), "\uFFFD");
  EXPECT_EQ(pieces.push(id("▁he")), " he");
  EXPECT_EQ(pieces.push(id("<0x0A>")), "");
  EXPECT_EQ(pieces.flush(), "\n");
}

TEST(Detokenizer, LongOutputsTakeLinearTime) {
  const auto sentencepiece = load_tokenizer(test::small_sentencepiece());
  const TokenId byte = *sentencepiece->find_token("<0x41>");
  Detokenizer detokenizer(*sentencepiece, true);
  const double start = cpu_seconds();
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += detokenizer.push(byte);
  text += detokenizer.flush();
  const double took = cpu_seconds() - start;
  EXPECT_EQ(text.size(), 1'000'000u);
  EXPECT_LT(took, kSecondsAllowed);
}

}  // namespace
}  // namespace quire::tokenize
