// The token models behind BPE, and the parts they are made of.
#include <random>

#include <boost/json/serialize.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "tests/tokenize/tokenizer_files.h"
#include "tokenize/base64.h"
#include "tokenize/token_trie.h"
#include "tokenize/unigram.h"
#include "tokenize/word_piece.h"

namespace quire::tokenize {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

json::value parsed(std::string_view text) { return parse_json(text, "test"); }

TEST(Base64, KnownTexts) {
  // RFC 4648, section 10.
  for (const auto& [text, bytes] : std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                                                    {"Zg==", "f"},
                                                                                    {"Zm8=", "fo"},
                                                                                    {"Zm9v", "foo"},
                                                                                    {"Zm9vYmE=", "fooba"},
                                                                                    {"+/8=", "\xFB\xFF"}}) {
    std::string out = "x";
    EXPECT_TRUE(append_from_base64(out, text)) << text;
    EXPECT_EQ(out, "x" + bytes);
  }
  for (const std::string_view text :
       {"Z", "Zg", "Zg=", "Z===", "=Zg=", "Zg==Zg==", "Zm 9", "Zm9v\n", "Zm-v"}) {
    std::string out = "x";
    EXPECT_FALSE(append_from_base64(out, text)) << text;
    EXPECT_EQ(out, "x");
  }
}

TEST(TokenTrie, FindsEveryEntryAndNothingElse) {
  std::mt19937 rng(8);
  for (int round = 0; round < 50; ++round) {
    // Few letters make shared heads; many make nodes with more links than are scanned.
    const uint32_t letters = round % 2 == 0 ? 3 : 256;
    const auto word = [&] {
      std::string text;
      for (size_t i = rng() % 6; i > 0; --i) text += static_cast<char>(rng() % letters);
      return text;
    };
    std::map<std::string, TokenId> entries;
    for (TokenId id = 0; id < 200; ++id) entries.emplace(word(), id);
    const TokenTrie trie({entries.begin(), entries.end()});
    for (int k = 0; k < 500; ++k) {
      const std::string text = word();
      const auto known = entries.find(text);
      const TokenTrie::Node node = trie.walk(TokenTrie::kRoot, text);
      const TokenId found = node == TokenTrie::kNone ? -1 : trie.token(node);
      EXPECT_EQ(found, known == entries.end() || text.empty() ? -1 : known->second);
    }
  }
}

/// All ways to write `text`, the best by its sum, of equal ones that with the longest last entry: the
/// definition of a unigram model.
struct Plain {
  std::vector<std::string> texts;
  std::vector<double> scores;
  double unknown = 0;

  std::pair<double, std::vector<TokenId>> best(std::string_view text) const {
    if (text.empty()) return {0, {}};
    std::pair<double, std::vector<TokenId>> top{-1e300, {}};
    const auto consider = [&](size_t size, TokenId id, double score) {
      auto [before, ids] = best(text.substr(0, text.size() - size));
      if (before + score <= top.first) return;
      ids.push_back(id);
      top = {before + score, std::move(ids)};
    };
    const size_t last = utf8_before(text, text.size()).size;
    bool single = false;
    for (size_t size = text.size(); size > 0; --size) {
      const std::string_view tail = text.substr(text.size() - size);
      const auto found = std::find(texts.begin(), texts.end(), tail);
      if (found == texts.end()) continue;
      const auto i = static_cast<size_t>(found - texts.begin());
      consider(size, static_cast<TokenId>(i), scores[i]);
      single = single || size == last;
    }
    if (!single) consider(last, 0, unknown);
    return top;
  }
};

TEST(Unigram, EqualsTheDefinition) {
  std::mt19937 rng(9);
  static const std::vector<std::string> kLetters = {"a", "b", "é", "日", "x"};
  for (int round = 0; round < 300; ++round) {
    Plain plain{{"?"}, {-9}, 0};
    for (size_t i = 1 + rng() % 12; i > 0; --i) {
      std::string text;
      for (size_t k = 1 + rng() % 4; k > 0; --k) text += kLetters[rng() % 4];
      if (std::find(plain.texts.begin(), plain.texts.end(), text) != plain.texts.end()) continue;
      plain.texts.push_back(text);
      // So few bits that every sum is exact, in single precision too.
      plain.scores.push_back(-1 - static_cast<double>(rng() % (1U << 18)) / (1U << 16));
    }
    plain.unknown = *std::min_element(plain.scores.begin(), plain.scores.end()) - 10;
    for (const bool single : {false, true}) {
      UnigramOptions options{plain.scores, {}, 0, false, single};
      const Unigram model(Vocabulary::from_list(plain.texts).value(), std::move(options));
      for (int k = 0; k < 10; ++k) {
        std::string text;
        for (size_t i = 1 + rng() % 9; i > 0; --i) text += kLetters[rng() % kLetters.size()];
        auto expected = plain.best(text).second;
        const auto last = std::unique(expected.begin(), expected.end(),
                                      [](TokenId a, TokenId b) { return a == 0 && b == 0; });
        expected.erase(last, expected.end());
        std::vector<TokenId> ids;
        model.start(text.size())->encode(text, ids);
        EXPECT_EQ(ids, expected) << text;
      }
    }
  }
}

TEST(WordPiece, LongestFirstOrUnknown) {
  const json::value file = parsed(R"({"unk_token": "[UNK]", "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 6, "vocab": {"[UNK]": 0, "un": 1, "##aff": 2, "##able": 3, "##a": 4, "u": 5,
    "##n": 6, "unaf": 7, "é": 8}})");
  const std::filesystem::path where = "test";
  const auto model = WordPiece::from_json(JsonObject(file, where));
  const auto run = model->start(0);
  const auto encoded = [&](std::string_view word) {
    std::vector<TokenId> ids;
    run->encode(word, ids);
    return ids;
  };
  EXPECT_THAT(encoded("un"), ElementsAre(1));
  EXPECT_THAT(encoded("una"), ElementsAre(1, 4));
  EXPECT_THAT(encoded("unan"), ElementsAre(1, 4, 6));
  EXPECT_THAT(encoded("unaff"), ElementsAre(0));  // "unaf" is taken, and "##f" is no entry
  EXPECT_THAT(encoded("x"), ElementsAre(0));
  EXPECT_THAT(encoded("éaaaaa"), ElementsAre(8, 4, 4, 4, 4, 4));  // 6 characters
  EXPECT_THAT(encoded("éaaaaaa"), ElementsAre(0));
}

TEST(TokenModels, BadVocabulariesAreNamed) {
  const auto error = [](std::string_view model) {
    return test::load_error("{\"model\": " + std::string(model) + "}");
  };
  EXPECT_THAT(error(R"({"type": "Unigram", "vocab": [["a", 0], ["a", 1]], "unk_id": 0})"),
              HasSubstr("key 'model.vocab[1]': the same text as an earlier entry"));
  EXPECT_THAT(error(R"({"type": "Unigram", "vocab": [["a", 0], ["b"]], "unk_id": 0})"),
              HasSubstr("key 'model.vocab[1]': a text and its score"));
  EXPECT_THAT(error(R"({"type": "Unigram", "vocab": [["a", "x"]], "unk_id": 0})"),
              HasSubstr("model.vocab[0]"));
  EXPECT_THAT(error(R"({"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1})"),
              HasSubstr("key 'model.unk_id': 1 is out of range"));
  EXPECT_THAT(error(R"({"type": "Unigram", "vocab": [["a", 0]]})"), HasSubstr("key 'model.unk_id': missing"));
  EXPECT_THAT(error(R"({"type": "Unigram", "vocab": [], "unk_id": 0})"),
              HasSubstr("key 'model.vocab': empty"));
  EXPECT_THAT(error(R"({"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "u",
                        "continuing_subword_prefix": "", "max_input_chars_per_word": 9})"),
              HasSubstr("key 'model.unk_token': 'u' is not in the vocabulary"));
  EXPECT_THAT(error(R"({"type": "WordLevel", "vocab": {"a": 1000000000}, "unk_token": "a"})"),
              HasSubstr("key 'model.vocab.a': 1000000000 is out of range"));
  EXPECT_THAT(error(R"({"vocab": {"a": 0}})"), HasSubstr("key 'model.type': missing"));
}

TEST(TokenModels, OldFilesNameNoType) {
  const auto tokenizer =
      test::load_tokenizer(std::string_view(R"({"model": {"vocab": [["?", 0], ["a", -1]], "unk_id": 0}})"));
  EXPECT_THAT(tokenizer->encode("axa", false), ElementsAre(1, 0, 1));
}

}  // namespace
}  // namespace quire::tokenize
