// Masks over the vocabularies of real tokenizers: what a tokenizer makes of a text that a grammar permits
// must pass them token by token.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include "base/json.h"
#include "grammar/gbnf.h"
#include "grammar/schema.h"
#include "startup/model_files.h"
#include "tests/grammar/follow.h"
#include "tests/support/data.h"

namespace quire::grammar {
namespace {

/// Texts of `pieces` in any order.
std::string text_of(std::mt19937& rng, size_t max_pieces) {
  static const std::vector<std::string> kPieces = {"fox",
                                                   " Finn",
                                                   " the",
                                                   "ing",
                                                   "ö",
                                                   " café",
                                                   "naïve",
                                                   " Žluťoučký",
                                                   "日本",
                                                   "語。",
                                                   "한국어",
                                                   "Привет",
                                                   "مرحبا",
                                                   "e\u0301",
                                                   "🦊",
                                                   "👩‍👩‍👧",
                                                   "🇨🇭",
                                                   "𝄞",
                                                   "1",
                                                   "2026",
                                                   " -3.5e7",
                                                   "\n",
                                                   "\r\n",
                                                   "\t",
                                                   "  ",
                                                   "        ",
                                                   "\u00a0",
                                                   "\u3000",
                                                   "for (int i = 0; i < n; ++i) {",
                                                   "}\n\n",
                                                   "def f(x):\n    return x\n",
                                                   "std::vector<int>",
                                                   "// ",
                                                   "</div>",
                                                   "\"",
                                                   "\\",
                                                   "\\n",
                                                   "'s",
                                                   "!?",
                                                   "...",
                                                   "```",
                                                   "{{",
                                                   "<|",
                                                   "\x01",
                                                   "\x7f"};
  std::string out;
  for (size_t count = 1 + rng() % max_pieces; count > 0; --count) out += kPieces[rng() % kPieces.size()];
  return out;
}

json::value value_of(std::mt19937& rng, int depth) {
  switch (rng() % (depth < 3 ? 7 : 5)) {
    case 0:
      return nullptr;
    case 1:
      return rng() % 2 == 0;
    case 2:
      return static_cast<int64_t>(rng()) - 2'000'000'000;
    case 3:
    case 4:
      return json::string(text_of(rng, 5));
    case 5: {
      json::array out;
      for (size_t count = rng() % 4; count > 0; --count) out.push_back(value_of(rng, depth + 1));
      return out;
    }
    default: {
      json::object out;
      for (size_t count = rng() % 4; count > 0; --count) {
        out["key " + std::to_string(rng() % 90)] = value_of(rng, depth + 1);
      }
      return out;
    }
  }
}

/// An instance of kSchema.
std::string document_of(std::mt19937& rng) {
  json::object out;
  out["name"] = text_of(rng, 6);
  out["tags"] = json::array{text_of(rng, 3), text_of(rng, 1)};
  out["count"] = rng() % 1001;
  if (rng() % 2 == 0) out["more"] = value_of(rng, 1);
  return json::serialize(out);
}
constexpr const char* kSchema = R"({"type": "object", "properties": {"name": {"type": "string"},
    "tags": {"type": "array", "items": {"type": "string", "minLength": 1}},
    "count": {"type": "integer", "minimum": 0, "maximum": 1000}, "more": {}}, "required": ["name", "tags", "count"]})";

constexpr int kTexts = 60;

struct Model {
  std::unique_ptr<tokenize::Tokenizer> tokenizer;
  Vocabulary vocabulary;
  std::unique_ptr<Compiler> compiler;

  explicit Model(const std::filesystem::path& path) : tokenizer(startup::load_tokenizer(path)) {
    const auto size = static_cast<uint32_t>(tokenizer->vocab_size());
    auto made = vocabulary_of(*tokenizer, size + 1, std::vector<TokenId>{end()});
    EXPECT_TRUE(made) << path << ": " << (made ? "" : made.error());
    if (!made) return;
    vocabulary = std::move(*made);
    CompilerConfig config = test_config();
    config.trial_cpu_seconds = 60;
    compiler = std::make_unique<Compiler>(vocabulary, config);
  }
  /// In another thread: the one that compiles keeps a low priority.
  auto compile(const std::string& grammar) {
    return std::async(std::launch::async, [&] { return compiler->compile(grammar); }).get();
  }
  /// An id behind the vocabulary: not every file says which token ends an answer.
  TokenId end() const { return static_cast<TokenId>(tokenizer->vocab_size()); }

  /// What the tokenizer makes of a text inside another; empty if it has no tokens for it. SentencePiece puts
  /// a space before a text, so what comes before it is cut off again.
  std::vector<TokenId> tokens_of(const std::string& text) const {
    for (const std::string before : {"", "\n", "x\n"}) {
      std::vector<TokenId> ids = tokenizer->encode(before + text, false);
      std::string joined;
      size_t at = ids.size();
      while (at > 0 && joined.size() < text.size()) {
        joined.insert(0, vocabulary.tokens[static_cast<size_t>(ids[--at])]);
      }
      if (joined == text) return {ids.begin() + static_cast<ptrdiff_t>(at), ids.end()};
    }
    return {};
  }

  /// At which token a mask forbids the text; -1: nowhere, and it may end there.
  int refused_at(const engine::MakeMaskSource& make, const std::vector<TokenId>& ids) const {
    const auto source = make();
    std::vector<uint32_t> mask;
    for (size_t i = 0; i <= ids.size(); ++i) {
      mask.assign(backend::mask_words(static_cast<uint32_t>(vocabulary.tokens.size())), ~0U);
      source->fill(mask);
      const TokenId next = i < ids.size() ? ids[i] : end();
      if (!allows(mask, next)) return static_cast<int>(i);
      source->accept(next);
    }
    return -1;
  }

  /// `most_lacking`: of kTexts, for how many the vocabulary may have no tokens.
  void expect_follows(const std::string& grammar, std::string (*draw)(std::mt19937&), int most_lacking) {
    auto make = compile(grammar);
    ASSERT_TRUE(make) << make.error().message;
    std::mt19937 rng(19);
    int lacking = 0;
    for (int i = 0; i < kTexts; ++i) {
      const std::string text = draw(rng);
      const std::vector<TokenId> ids = tokens_of(text);
      if (ids.empty()) {
        ++lacking;
        continue;
      }
      const int refused = refused_at(*make, ids);
      EXPECT_EQ(refused, -1) << text;
    }
    EXPECT_LE(lacking, most_lacking);
  }
};

struct TokenizerFile {
  const char* path;
  int most_lacking = 0;
};

void PrintTo(const TokenizerFile& file, std::ostream* out) { *out << file.path; }

class Tokenizers : public testing::TestWithParam<TokenizerFile> {};

TEST_P(Tokenizers, WhatAGrammarPermitsPassesTokenByToken) {
  QUIRE_NEEDS_XGRAMMAR();
  QUIRE_NEEDS_DATA(GetParam().path);
  Model model(test::data_dir() / GetParam().path);
  if (!model.compiler) return;
  const int lacking = GetParam().most_lacking;
  const auto any = [](std::mt19937& rng) { return text_of(rng, 12); };
  model.expect_follows(*regex_grammar("[^]*"), any, lacking);
  model.expect_follows(*gbnf_grammar("root ::= (word | .)*\nword ::= \"fox\" | \" the\" | [0-9]+"), any,
                       lacking);
  model.expect_follows(*schema_grammar(json::parse(kSchema)), document_of, lacking);
}

/// A choice of texts is so closed that each mask is known: the tokens that begin what may still come.
TEST_P(Tokenizers, AMaskHasTheTokensThatBeginWhatMayComeAndNoOther) {
  QUIRE_NEEDS_XGRAMMAR();
  QUIRE_NEEDS_DATA(GetParam().path);
  Model model(test::data_dir() / GetParam().path);
  if (!model.compiler) return;
  std::mt19937 rng(7);
  std::vector<std::string> texts;
  while (texts.size() < 20) {
    if (std::string text = text_of(rng, 4); !model.tokens_of(text).empty()) texts.push_back(std::move(text));
  }
  auto make = model.compile(choice_grammar(texts));
  ASSERT_TRUE(make) << make.error().message;
  const std::vector<std::string>& tokens = model.vocabulary.tokens;
  std::vector<uint32_t> mask;
  for (const std::string& text : texts) {
    const auto source = (*make)();
    std::string so_far;
    for (const TokenId next : model.tokens_of(text)) {
      mask.assign(backend::mask_words(static_cast<uint32_t>(tokens.size())), ~0U);
      source->fill(mask);
      std::vector<std::string_view> rests;  // of the texts that begin so
      for (const std::string& each : texts) {
        if (each.starts_with(so_far)) rests.push_back(std::string_view(each).substr(so_far.size()));
      }
      for (size_t id = 0; id + 1 < tokens.size(); ++id) {
        const auto begins = [&](std::string_view rest) { return rest.starts_with(tokens[id]); };
        const bool may = !tokens[id].empty() && std::ranges::any_of(rests, begins);
        ASSERT_EQ(allows(mask, static_cast<TokenId>(id)), may)
            << "'" << tokens[id] << "' after '" << so_far << "'";
      }
      source->accept(next);
      so_far += tokens[static_cast<size_t>(next)];
    }
  }
}

/// Strings that are counted as they are matched have the masks of an automaton with a state for each length.
TEST(Tokenizers, CountedStringsHaveTheMasksOfAnAutomaton) {
  QUIRE_NEEDS_XGRAMMAR();
  const std::string counted = *schema_grammar(json::parse(R"({"type": "array", "prefixItems": [
      {"type": "string", "maxLength": 17},
      {"anyOf": [{"type": "string", "maxLength": 17}, {"type": "string", "minLength": 5, "maxLength": 19}]}],
      "minItems": 2, "maxItems": 2})"));
  const std::string ws = R"((?: |\n{1,2}[ \t]{0,20}|))";
  const std::string character = R"([^"\\\x00-\x1f])";
  const std::string automaton = *regex_grammar("\\[" + ws + "\"" + character + "{0,17}\"," + ws + "\"" +
                                               character + "{0,19}\"" + ws + "\\]");
  for (const char* path :
       {"tokenizer-llama3/tokenizer.model", "tokenizer-hf-json/tinystories_bpe4096_tokenizer.json"}) {
    QUIRE_NEEDS_DATA(path);
    Model model(test::data_dir() / path);
    const auto make = model.compile(counted);
    const auto make_other = model.compile(automaton);
    ASSERT_TRUE(make && make_other) << (make ? make_other.error().message : make.error().message);
    std::mt19937 rng(3);
    std::vector<TokenId> allowed;
    for (int walk = 0; walk < 10; ++walk) {
      const auto source = (*make)();
      const auto other = (*make_other)();
      std::string so_far;
      do {
        const size_t size = model.vocabulary.tokens.size();
        std::vector<uint32_t> mask(backend::mask_words(static_cast<uint32_t>(size)), ~0U);
        std::vector<uint32_t> expected = mask;
        source->fill(mask);
        other->fill(expected);
        allowed.clear();
        for (TokenId id = 0; static_cast<size_t>(id) < size; ++id) {
          ASSERT_EQ(allows(mask, id), allows(expected, id))
              << "'" << model.vocabulary.tokens[static_cast<size_t>(id)] << "' after '" << so_far << "'";
          if (allows(mask, id)) allowed.push_back(id);
        }
        ASSERT_FALSE(allowed.empty()) << so_far;
        const TokenId next = allowed[rng() % allowed.size()];
        source->accept(next);
        other->accept(next);
        so_far += model.vocabulary.tokens[static_cast<size_t>(next)];
      } while (!other->complete());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Tokenizers,
                         testing::Values(TokenizerFile{"tokenizer-hf-json/gpt2_tokenizer.json"},
                                         TokenizerFile{"tokenizer-hf-json/llama_tokenizer.json"},
                                         TokenizerFile{"tokenizer-hf-json/tinystories_bpe4096_tokenizer.json",
                                                       55},
                                         TokenizerFile{"tokenizer-llama2/tokenizer.model"},
                                         TokenizerFile{"tokenizer-llama3/tokenizer.model"},
                                         TokenizerFile{"tokenizer-llama-cpp/ggml-vocab-gpt-2.gguf"},
                                         TokenizerFile{"tokenizer-llama-cpp/ggml-vocab-llama-spm.gguf"}),
                         [](const auto& of) {
                           std::string name;
                           for (const char* c = of.param.path; *c != '\0'; ++c) {
                             if (std::isalnum(static_cast<unsigned char>(*c)) != 0) name += *c;
                           }
                           return name;
                         });

TEST(Tokenizers, ATextThatIsNoConcatenationOfTokensIsRefused) {
  const auto dir = test::temp_dir();
  const auto made = [&](const std::string& decoder) {
    const auto path = dir / "tokenizer.json";
    std::filesystem::remove(path);
    std::ofstream(path) << R"({"model": {"type": "WordLevel", "unk_token": "?",
        "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3, "<pad>": 4}}, "decoder": )"
                        << decoder << "}";
    return vocabulary_of(*startup::load_tokenizer(path), 6, std::vector<TokenId>{5});
  };
  EXPECT_TRUE(made(R"({"type": "Fuse"})"));
  const auto refused = made(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
      {"type": "Replace", "pattern": {"String": "ab"}, "content": "x"}]})");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("depends on their neighbours"), std::string::npos) << refused.error();
}

TEST(Tokenizers, AModelWithoutAnEndIsRefused) {
  QUIRE_NEEDS_DATA("tokenizer-hf-json");
  const auto tokenizer =
      startup::load_tokenizer(test::data_dir() / "tokenizer-hf-json/tinystories_bpe4096_tokenizer.json");
  for (const std::vector<TokenId>& ends : {std::vector<TokenId>{}, {-1}, {4096}}) {
    const auto made = vocabulary_of(*tokenizer, 4096, ends);
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().find("names no token that ends an answer"), std::string::npos) << made.error();
  }
}

}  // namespace
}  // namespace quire::grammar
