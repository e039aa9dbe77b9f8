#include "tokenize/gguf_vocabulary.h"

#include <fstream>
#include <functional>
#include <limits>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/support/data.h"
#include "tokenize/byte_level.h"
#include "tokenize/gguf_pre_tokenizer.h"
#include "tokenize/sentencepiece_file.h"

namespace quire::tokenize {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

constexpr const char* kWhere = "a.gguf";

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  return "no error";
}

std::string load_error(const GgufVocabulary& v) {
  return error_of([&] { load_gguf_tokenizer(v, kWhere); });
}

/// All bytes, then a few merged entries and special ones.
GgufVocabulary byte_level() {
  GgufVocabulary v;
  v.model = "gpt2";
  v.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    append_byte_level(v.tokens.emplace_back(), std::string(1, static_cast<char>(byte)));
  }
  v.merges = {"h e", "l l", "he ll", "hell o", "\u0120 hell"};
  for (const char* merged : {"he", "ll", "hell", "hello", "\u0120hell"}) v.tokens.emplace_back(merged);
  v.types.assign(v.tokens.size(), GgufVocabulary::kNormal);
  const auto add = [&](const char* text, int32_t type) {
    v.tokens.emplace_back(text);
    v.types.push_back(type);
  };
  add("<bos>", GgufVocabulary::kControl);    // 261
  add("<eos>", GgufVocabulary::kControl);    // 262
  add("   ", GgufVocabulary::kUserDefined);  // 263
  add("he", GgufVocabulary::kNormal);        // 264, there before
  add("", GgufVocabulary::kUnused);          // 265
  v.ids = {{"bos", 261}, {"eos", 262}};
  return v;
}

/// Bytes at 3..258, then pieces.
GgufVocabulary sentencepiece() {
  GgufVocabulary v;
  v.model = "llama";
  const auto add = [&](const std::string& text, float score, int32_t type) {
    v.tokens.push_back(text);
    v.scores.push_back(score);
    v.types.push_back(type);
  };
  add("<unk>", 0, GgufVocabulary::kUnknown);
  add("<s>", 0, GgufVocabulary::kControl);
  add("</s>", 0, GgufVocabulary::kControl);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 0, GgufVocabulary::kByte);
  add("\u2581", -10, GgufVocabulary::kNormal);         // 259
  add("a", -11, GgufVocabulary::kNormal);              // 260
  add("b", -12, GgufVocabulary::kNormal);              // 261
  add("ab", -1, GgufVocabulary::kNormal);              // 262
  add("\u2581a", -2, GgufVocabulary::kNormal);         // 263
  add("aa", -3, GgufVocabulary::kNormal);              // 264
  add("aaa", -4, GgufVocabulary::kNormal);             // 265
  add("<user>", -1000, GgufVocabulary::kUserDefined);  // 266
  v.ids = {{"bos", 1}, {"eos", 2}, {"unknown", 0}};
  return v;
}

TEST(GgufVocabulary, ByteLevel) {
  const auto tokenizer = load_gguf_tokenizer(byte_level(), kWhere);
  EXPECT_THAT(tokenizer->encode("hello", true), ElementsAre(259));
  EXPECT_THAT(tokenizer->encode(" hello", true), ElementsAre(' ', 259)) << "hell o has the better rank";
  EXPECT_THAT(tokenizer->encode(" hell", true), ElementsAre(260));
  EXPECT_THAT(tokenizer->encode("<bos>he<eos>", true), ElementsAre(261, 256, 262));
  EXPECT_THAT(tokenizer->encode("he   he", true), ElementsAre(256, 263, 256));
  EXPECT_TRUE(tokenizer->is_special(262));
  EXPECT_FALSE(tokenizer->is_special(263));
  EXPECT_EQ(tokenizer->decode(Ids{261, 260, 'o', 264}, true), " hello[UNUSED_264]");
  EXPECT_EQ(tokenizer->vocab_size(), 266U);
}

TEST(GgufVocabulary, BeginsAndEndsAsTheFileSays) {
  GgufVocabulary v = byte_level();
  EXPECT_THAT(load_gguf_tokenizer(v, kWhere)->encode("he", true), ElementsAre(256));
  v.add_bos = true;
  v.add_eos = true;
  EXPECT_THAT(load_gguf_tokenizer(v, kWhere)->encode("he", true), ElementsAre(261, 256, 262));
  EXPECT_THAT(load_gguf_tokenizer(v, kWhere)->encode("he", false), ElementsAre(256));
  v.add_bos.reset();
  v.pre = "llama-bpe";  // whose models want it
  EXPECT_THAT(load_gguf_tokenizer(v, kWhere)->encode("he", true), ElementsAre(261, 256, 262));
  v.add_bos = false;
  EXPECT_THAT(load_gguf_tokenizer(v, kWhere)->encode("he", true), ElementsAre(256, 262));
  v.add_eos = true;
  v.ids.erase("eos");
  EXPECT_THAT(load_gguf_tokenizer(v, kWhere)->encode("he", true), ElementsAre(256));
}

TEST(GgufVocabulary, SentencePieceMergesByScore) {
  const auto tokenizer = load_gguf_tokenizer(sentencepiece(), kWhere);
  EXPECT_THAT(tokenizer->encode("ab", true), ElementsAre(1, 259, 262));
  EXPECT_THAT(tokenizer->encode("a", true), ElementsAre(1, 263));
  EXPECT_THAT(tokenizer->encode("baaa", false), ElementsAre(259, 261, 265));
  EXPECT_THAT(tokenizer->encode("\n", false), ElementsAre(259, 3 + 10));
  EXPECT_THAT(tokenizer->encode("<s>b</s>", false), ElementsAre(1, 259, 261, 2));
  EXPECT_THAT(tokenizer->encode("b<user>b", false), ElementsAre(259, 261, 266, 261));
  EXPECT_EQ(tokenizer->decode(Ids{1, 263, 262}, true), "aab");
  EXPECT_EQ(tokenizer->decode(Ids{259, 3 + 0xe2, 3 + 0x82, 3 + 0xac}, true), "\u20ac");
}

TEST(GgufVocabulary, OtherUnknownsAreSpecial) {
  GgufVocabulary v = sentencepiece();
  v.types[262] = GgufVocabulary::kUnknown;
  const auto tokenizer = load_gguf_tokenizer(v, kWhere);
  EXPECT_TRUE(tokenizer->is_special(262));
  EXPECT_THAT(tokenizer->encode("ba ab", false), ElementsAre(259, 261, 260, 259, 262));
}

TEST(GgufVocabulary, SentencePieceWithoutPrefix) {
  GgufVocabulary v = sentencepiece();
  v.add_space_prefix = false;
  v.add_bos = false;
  EXPECT_THAT(load_gguf_tokenizer(v, kWhere)->encode("ab  b", true), ElementsAre(262, 259, 259, 261));
}

TEST(GgufVocabulary, SentencePieceFilesReadBack) {
  for (const bool with_unknown : {true, false}) {
    GgufVocabulary v = sentencepiece();
    if (!with_unknown) v.types[0] = GgufVocabulary::kControl;
    const TokenizerFiles files = huggingface_files(v, kWhere);
    ASSERT_TRUE(files.tokenizer_model);
    const auto dir = test::temp_dir();
    std::ofstream(dir / "tokenizer.model", std::ios::binary) << *files.tokenizer_model;
    std::ofstream(dir / "tokenizer_config.json") << json::serialize(*files.tokenizer_config);
    const auto own = load_gguf_tokenizer(v, kWhere);
    const auto read = Tokenizer::load(dir);
    for (const char* text : {"ab aaa", "", " b", "<s>a</s>b", "\u20ac\n", "<user> a", "aaaaaaab"}) {
      EXPECT_EQ(own->encode(text, true), read->encode(text, true)) << text;
      EXPECT_EQ(own->decode(own->encode(text, true), false), read->decode(read->encode(text, true), false))
          << text;
    }
    const SentencePieceFile file = read_sentencepiece(*files.tokenizer_model, dir);
    EXPECT_EQ(file.pieces.size(), v.tokens.size());
    EXPECT_EQ(file.pieces[263].score, -2.0F);
    EXPECT_EQ(file.bos, 1);

    // And on to GGUF again, with one more token in the model than in the file.
    const GgufVocabulary again = gguf_vocabulary(dir, v.tokens.size() + 1, std::nullopt, {});
    EXPECT_EQ(again.model, "llama");
    EXPECT_EQ(again.tokens.back(), fmt::format("[PAD{}]", v.tokens.size()));
    EXPECT_EQ(again.types.back(), GgufVocabulary::kUnused);
    EXPECT_TRUE(std::equal(v.tokens.begin(), v.tokens.end(), again.tokens.begin()));
    EXPECT_EQ(again.scores[263], -2.0F);
    EXPECT_EQ(again.ids.at("eos"), 2);
    EXPECT_EQ(again.add_bos, true);
    EXPECT_EQ(load_gguf_tokenizer(again, kWhere)->encode("ab aaa", true), own->encode("ab aaa", true));
  }
}

TEST(GgufVocabulary, ByteLevelFilesReadBack) {
  GgufVocabulary v = byte_level();
  v.add_bos = true;
  v.chat_template = "{{ bos_token }}{{ messages[0].content }}";
  const TokenizerFiles files = huggingface_files(v, kWhere);
  ASSERT_TRUE(files.tokenizer_json);
  const auto dir = test::temp_dir();
  std::ofstream(dir / "tokenizer.json") << json::serialize(*files.tokenizer_json);
  std::ofstream(dir / "tokenizer_config.json") << json::serialize(*files.tokenizer_config);
  GgufVocabulary again = gguf_vocabulary(dir, v.tokens.size(), std::nullopt, {7});
  EXPECT_EQ(again.pre, "gpt-2");
  EXPECT_EQ(again.merges, v.merges);
  EXPECT_EQ(again.types[262], GgufVocabulary::kControl);
  EXPECT_EQ(again.types[263], GgufVocabulary::kUserDefined);
  EXPECT_EQ(again.ids.at("bos"), 261);
  EXPECT_EQ(again.ids.at("eot"), 7);
  EXPECT_EQ(again.add_bos, true);
  EXPECT_EQ(again.add_eos, false);
  EXPECT_EQ(again.chat_template, v.chat_template);
  // By its own tokenizer.json and by the keys alike.
  for (const bool by_keys : {false, true}) {
    if (by_keys) again.huggingface_json.reset();
    const auto tokenizer = load_gguf_tokenizer(again, kWhere);
    for (const char* text : {"hello hello", "", "   he", "<bos>x", "\u20ac"}) {
      EXPECT_EQ(tokenizer->encode(text, true), load_gguf_tokenizer(v, kWhere)->encode(text, true)) << text;
    }
  }
}

TEST(GgufVocabulary, TheDemoModelsTokenizer) {
  const auto dir = test::demo_model_dir();
  GgufVocabulary v = gguf_vocabulary(dir, 4096, 4091, {4092, 4095});
  EXPECT_EQ(v.pre, "llama-bpe");
  EXPECT_EQ(v.ids.at("bos"), 4091);
  EXPECT_EQ(v.ids.at("eos"), 4095);
  EXPECT_EQ(v.ids.at("eot"), 4092);
  v.huggingface_json.reset();
  const auto own = Tokenizer::load(dir);
  const auto from_keys = load_gguf_tokenizer(v, kWhere);
  for (const char* text :
       {"Once upon a time, 12345 Foxes'll\n\n jump.", "<|start_header_id|>user<|end_header_id|>",
        "  \u00e9\u4e16\u754c\U0001f999", ""}) {
    EXPECT_EQ(own->encode(text, true), from_keys->encode(text, true)) << text;
  }
  const auto chat = find_gguf_chat_templates(v, kWhere);
  ASSERT_FALSE(chat.empty());
  EXPECT_EQ(chat.choose({}).value()->source(), chat::ChatTemplates::load(dir).choose({}).value()->source());
}

/// Real tokenizer.json files by what the keys of GGUF keep of them.
TEST(GgufVocabulary, KeysSayWhatTokenizerJsonSays) {
  QUIRE_NEEDS_DATA("tokenizer-hf-json");
  QUIRE_NEEDS_DATA("tokenizer-parity");
  struct Case {
    const char* file;
    size_t vocab_size;
    const char* model;
  };
  const json::value inputs =
      read_json_file(test::data_dir() / "tokenizer-parity" / "multilingual_inputs.json");
  for (const Case& each :
       {Case{"gpt2_tokenizer.json", 50257, "gpt2"}, Case{"llama_tokenizer.json", 32000, "llama"},
        Case{"tinystories_bpe4096_tokenizer.json", 4096, "gpt2"}}) {
    const auto dir = test::temp_dir();
    std::filesystem::copy(test::data_dir() / "tokenizer-hf-json" / each.file, dir / "tokenizer.json");
    GgufVocabulary v = gguf_vocabulary(dir, each.vocab_size, std::nullopt, {});
    EXPECT_EQ(v.model, each.model);
    ASSERT_TRUE(v.huggingface_json);
    v.huggingface_json.reset();
    const auto own = Tokenizer::load(dir);
    const auto from_keys = load_gguf_tokenizer(v, kWhere);
    const json::array& texts =
        inputs.is_array() ? inputs.get_array() : inputs.get_object().at("inputs").get_array();
    ASSERT_GT(texts.size(), 80U);
    for (const json::value& text : texts) {
      const std::string_view input =
          text.is_string() ? text.get_string() : text.get_object().at("text").get_string();
      EXPECT_EQ(own->encode(input, true), from_keys->encode(input, true)) << each.file << ": " << input;
    }
  }
}

TEST(GgufVocabulary, Templates) {
  GgufVocabulary v = byte_level();
  EXPECT_TRUE(find_gguf_chat_templates(v, kWhere).empty());
  v.chat_template = "{{ bos_token }}one";
  EXPECT_EQ(find_gguf_chat_templates(v, kWhere).render({}).value(), "<bos>one");
  v.named_templates["tool_use"] = "two";
  EXPECT_EQ(find_gguf_chat_templates(v, kWhere).render({}).value(), "<bos>one");
  EXPECT_EQ(find_gguf_chat_templates(v, kWhere).render({{"tools", json::array()}}).value(), "two");
  v.named_templates["tool_use"] = "{% for %}";
  EXPECT_THAT(find_gguf_chat_templates(v, kWhere).faults(),
              testing::ElementsAre(HasSubstr("a.gguf: key 'tokenizer.chat_template.tool_use': line 1")));
  v.model = kGgufNoVocabulary;
  EXPECT_TRUE(find_gguf_chat_templates(v, kWhere).empty());
}

TEST(GgufVocabulary, WhatIsWrongIsNamed) {
  GgufVocabulary v = byte_level();
  v.types.pop_back();
  EXPECT_THAT(load_error(v), HasSubstr("a.gguf: key 'tokenizer.ggml.token_type': 265 types for 266 tokens"));
  v = byte_level();
  v.ids["bos"] = 266;
  EXPECT_THAT(load_error(v),
              HasSubstr("key 'tokenizer.ggml.bos_token_id': 266 is not one of the 266 tokens"));
  v.ids["bos"] = -1;
  EXPECT_THAT(load_error(v), HasSubstr("-1 is not one"));
  v = byte_level();
  v.pre = "kimi-k2";
  EXPECT_THAT(load_error(v), HasSubstr("key 'tokenizer.ggml.pre': 'kimi-k2' is not supported"));
  v = byte_level();
  v.merges.emplace_back("hello");
  EXPECT_THAT(load_error(v), HasSubstr("key 'tokenizer.ggml.merges'"));
  v.merges.back() = "not there";
  EXPECT_THAT(load_error(v), HasSubstr("'not' is not in the vocabulary"));
  v = byte_level();
  v.tokens[7] = "\xff";
  EXPECT_THAT(load_error(v), HasSubstr("key 'tokenizer.ggml.tokens': number 7 is not UTF-8"));
  v.tokens.clear();
  EXPECT_THAT(load_error(v), HasSubstr("there are none"));
  v = byte_level();
  v.model = "t5";
  EXPECT_THAT(load_error(v), HasSubstr("key 'tokenizer.ggml.model': 't5' is not supported (llama, gpt2)"));
  v = byte_level();
  v.huggingface_json = "{";
  EXPECT_THAT(load_error(v), HasSubstr("a.gguf: key 'tokenizer.huggingface.json': at byte"));

  v = sentencepiece();
  v.scores.clear();
  EXPECT_THAT(load_error(v), HasSubstr("key 'tokenizer.ggml.scores': missing"));
  v = sentencepiece();
  v.scores[260] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(load_error(v), HasSubstr("that of token 260 is not a number"));
  v = sentencepiece();
  v.types[260] = 9;
  EXPECT_THAT(load_error(v), HasSubstr("9 is not a type (token 260)"));
  v = sentencepiece();
  v.types[260] = GgufVocabulary::kByte;
  EXPECT_THAT(load_error(v), HasSubstr("257 byte tokens"));
}

TEST(GgufVocabulary, DirectoriesThatHaveNoForm) {
  const auto dir = test::temp_dir();
  EXPECT_EQ(gguf_vocabulary(dir, 10, 1, {2}).model, kGgufNoVocabulary);
  const auto with = [&](std::string_view text) {
    std::ofstream(dir / "tokenizer.json", std::ios::trunc) << text;
    return error_of([&] { gguf_vocabulary(dir, 10, std::nullopt, {}); });
  };
  EXPECT_THAT(with(R"({"model":{"type":"Unigram","vocab":[]}})"),
              HasSubstr("key 'model.type': GGUF has no equivalent of 'Unigram'"));
  EXPECT_THAT(with(R"({"model":{"type":"BPE","vocab":{"a":10},"merges":[]}})"),
              HasSubstr("10 is beyond the model's 10 tokens"));
  EXPECT_THAT(with(R"({"model":{"type":"BPE","vocab":{"a":1},"merges":[]}})"), HasSubstr("key 'decoder'"));
  EXPECT_THAT(with(R"({"model":{"type":"BPE","vocab":{"a":1},"merges":[]},"decoder":{"type":"ByteLevel"},
                       "pre_tokenizer":{"type":"Whitespace"}})"),
              HasSubstr("key 'pre_tokenizer': GGUF has no name for this one"));
  std::filesystem::remove(dir / "tokenizer.json");
  std::ofstream(dir / "tokenizer.model") << "IQ== 0\nIg== 1\n";
  EXPECT_THAT(error_of([&] { gguf_vocabulary(dir, 10, std::nullopt, {}); }),
              HasSubstr("a tokenizer.json is needed"));
}

TEST(GgufPreTokenizer, EveryNameLoadsAndIsFoundAgain) {
  for (const char* name : {"gpt-2", "mpt", "llama-bpe", "smaug-bpe", "qwen2", "deepseek-r1-qwen", "qwen35",
                           "starcoder", "refact", "smollm", "falcon", "deepseek-llm", "deepseek-coder",
                           "deepseek-v3", "tekken", "gpt-4o", "default", "command-r"}) {
    GgufVocabulary v = byte_level();
    v.pre = name;
    const auto tokenizer = load_gguf_tokenizer(v, kWhere);
    const Ids ids = tokenizer->encode("hello 12345, it's \u4e16\u754c!!\n\n  he", false);
    EXPECT_EQ(tokenizer->decode(ids, false), "hello 12345, it's \u4e16\u754c!!\n\n  he") << name;
    const json::value root = *huggingface_files(v, kWhere).tokenizer_json;
    EXPECT_EQ(match_gguf_pre_tokenizer(JsonObject(root, kWhere)), find_gguf_pre_tokenizer(name)) << name;
  }
  EXPECT_EQ(find_gguf_pre_tokenizer("nobody"), nullptr);
}

}  // namespace
}  // namespace quire::tokenize
