// Against what other implementations give: files of expected ids and texts.
#include <iterator>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/support/data.h"
#include "tests/tokenize/tokenizer_files.h"

namespace quire::tokenize {
namespace {

using test::data_dir;
using test::decode_in_pieces;
using test::ids_of;

std::unique_ptr<Tokenizer> hf_tokenizer(std::string_view name) {
  return Tokenizer::load(data_dir() / "tokenizer-hf-json" / (std::string(name) + "_tokenizer.json"));
}

std::unique_ptr<Tokenizer> model_tokenizer(std::string_view name) {
  return Tokenizer::load(data_dir() / ("tokenizer-" + std::string(name)) / "tokenizer.model");
}

std::string string_of(const json::value& value) { return std::string(value.as_string()); }

TEST(TokenizerReference, SmallVariantsEqualTheTokenizersLibrary) {
  set_log_level(LogLevel::kError);  // some variants say other ids than the vocabulary makes
  const json::value file = read_json_file("tests/tokenize/fixtures/tokenizer_cases.json");
  size_t rows = 0;
  for (const json::value& entry : file.at("cases").as_array()) {
    const json::object& test_case = entry.as_object();
    const std::string name = string_of(test_case.at("name"));
    SCOPED_TRACE(name);
    json::object root;
    if (const auto* base = test_case.at("base").if_string()) root = file.at("bases").at(*base).as_object();
    for (const auto& [key, value] : test_case.at("set").as_object()) root[key] = value;
    json::object& model =
        root["model"].is_object() ? root["model"].as_object() : root["model"].emplace_object();
    for (const auto& [key, value] : test_case.at("model").as_object()) model[key] = value;
    const auto tokenizer = test::load_tokenizer(root);
    for (const json::value& row : test_case.at("rows").as_array()) {
      const std::string text = string_of(row.at(0));
      SCOPED_TRACE(text);
      const auto ids = ids_of(row.at(1));
      EXPECT_EQ(tokenizer->encode(text, true), ids);
      EXPECT_EQ(tokenizer->encode(text, false), ids_of(row.at(2)));
      for (const bool skip : {false, true}) {
        const std::string expected = string_of(row.at(skip ? 4 : 3));
        EXPECT_EQ(tokenizer->decode(ids, skip), expected);
        EXPECT_EQ(decode_in_pieces(*tokenizer, ids, skip), expected);
      }
      ++rows;
    }
  }
  set_log_level(LogLevel::kInfo);
  EXPECT_GE(rows, 400u);
}

void expect_multilingual(const Tokenizer& tokenizer, std::string_view name) {
  const auto dir = data_dir() / "tokenizer-parity";
  std::map<std::string, std::string> texts;
  const json::value inputs = read_json_file(dir / "multilingual_inputs.json");
  for (const json::value& input : inputs.as_array()) {
    texts[string_of(input.at("id"))] = string_of(input.at("text"));
  }
  const json::value expected = read_json_file(dir / (std::string(name) + "_multilingual.json"));
  size_t checked = 0;
  for (const json::value& entry : expected.at("entries").as_array()) {
    const std::string id = string_of(entry.at("id"));
    SCOPED_TRACE(id);
    const auto ids = ids_of(entry.at("input_ids"));
    EXPECT_EQ(tokenizer.encode(texts.at(id), true), ids);
    EXPECT_EQ(tokenizer.decode(ids, false), string_of(entry.at("decoded_with_special")));
    EXPECT_EQ(tokenizer.decode(ids, true), string_of(entry.at("decoded_skip_special")));
    EXPECT_EQ(decode_in_pieces(tokenizer, ids, true), string_of(entry.at("decoded_skip_special")));
    const json::array& tokens = entry.at("tokens").as_array();
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(tokenizer.token_text(ids[i]), tokens.at(i).as_string());
    ++checked;
  }
  EXPECT_EQ(checked, 83u);
}

TEST(TokenizerReference, MultilingualTextsEqualTransformers) {
  QUIRE_NEEDS_DATA("tokenizer-parity");
  expect_multilingual(*hf_tokenizer("gpt2"), "gpt2");
  expect_multilingual(*hf_tokenizer("llama"), "tinyllama");
  expect_multilingual(*model_tokenizer("llama2"), "tinyllama");
}

void expect_cases(const Tokenizer& tokenizer, std::string_view name, bool decoded_is_plain) {
  const json::value file = read_json_file(data_dir() / "tokenizer-parity" / "tokenizer_tests.json");
  const json::array& cases = file.at(name).as_array();
  EXPECT_EQ(cases.size(), 18u);
  for (const json::value& test_case : cases) {
    const std::string text = string_of(test_case.at("input"));
    SCOPED_TRACE(text);
    const auto ids = ids_of(test_case.at("encoded").at("input_ids"));
    EXPECT_EQ(tokenizer.encode(text, true), ids);
    if (!decoded_is_plain) continue;
    EXPECT_EQ(tokenizer.decode(ids, false), string_of(test_case.at("decoded_with_special")));
    EXPECT_EQ(tokenizer.decode(ids, true), string_of(test_case.at("decoded_without_special")));
  }
}

TEST(TokenizerReference, CasesEqualTransformers) {
  QUIRE_NEEDS_DATA("tokenizer-parity");
  expect_cases(*hf_tokenizer("llama"), "coreml-projects/Llama-2-7b-chat-coreml", true);
  expect_cases(*model_tokenizer("llama2"), "coreml-projects/Llama-2-7b-chat-coreml", true);
  expect_cases(*model_tokenizer("llama3"), "pcuenq/Llama-3.2-1B-Instruct-tokenizer", false);
  // transformers removes spaces before punctuation from what this one decodes (clean_up_tokenization_spaces).
  expect_cases(*hf_tokenizer("gpt2"), "distilgpt2", false);
}

TEST(TokenizerReference, LongTextsEqualTransformers) {
  QUIRE_NEEDS_DATA("tokenizer-parity");
  for (const auto& [name, file] :
       {std::pair{"llama", "llama_encoded.json"}, {"gpt2", "gpt2_encoded_tokens.json"}}) {
    SCOPED_TRACE(name);
    const auto tokenizer = hf_tokenizer(name);
    const json::value expected = read_json_file(data_dir() / "tokenizer-parity" / file);
    const auto ids = ids_of(expected.at("token_ids"));
    EXPECT_EQ(tokenizer->encode(string_of(expected.at("text")), true), ids);
    EXPECT_EQ(tokenizer->decode(ids, false), string_of(expected.at("decoded_text")));
    const json::array& tokens = expected.at("bpe_tokens").as_array();
    std::vector<std::string> texts;
    for (const TokenId id : tokenizer->encode(string_of(expected.at("text")), false)) {
      texts.emplace_back(tokenizer->token_text(id));
    }
    ASSERT_EQ(texts.size(), tokens.size());
    for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], tokens[i].as_string());
  }
}

TEST(TokenizerReference, LlamaCppsInputs) {
  QUIRE_NEEDS_DATA("tokenizer-llama-cpp");
  const auto dir = data_dir() / "tokenizer-llama-cpp";
  const std::string all = read_file(dir / "ggml-vocab-all.gguf.inp");
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> inputs;
  for (size_t begin = 0; begin != all.npos;) {
    const size_t end = all.find(kSeparator, begin);
    inputs.push_back(all.substr(begin, end - begin));
    begin = end == all.npos ? end : end + kSeparator.size();
  }
  ASSERT_EQ(inputs.size(), 47u);
  const auto expect = [&](const Tokenizer& tokenizer, std::string_view file) {
    SCOPED_TRACE(file);
    std::istringstream lines(read_file(dir / file));
    for (const std::string& input : inputs) {
      SCOPED_TRACE(input);
      // The last input is empty, and its line is not there.
      std::string line;
      std::getline(lines, line);
      std::istringstream numbers(line);
      const std::vector<TokenId> ids{std::istream_iterator<TokenId>(numbers), {}};
      EXPECT_EQ(ids.empty(), input.empty());
      EXPECT_EQ(tokenizer.encode(input, false), ids);
    }
  };
  expect(*hf_tokenizer("llama"), "ggml-vocab-llama-spm.gguf.out");
  expect(*model_tokenizer("llama2"), "ggml-vocab-llama-spm.gguf.out");
  expect(*model_tokenizer("llama3"), "ggml-vocab-llama-bpe.gguf.out");
  expect(*hf_tokenizer("gpt2"), "ggml-vocab-gpt-2.gguf.out");
}

TEST(TokenizerReference, DemoModelsPrompts) {
  const auto dir = test::demo_model_dir();
  const auto tokenizer = Tokenizer::load(dir);
  const json::value conversations = read_json_file(dir / "expected_greedy_f32.json");
  ASSERT_GE(conversations.as_array().size(), 6u);
  for (const json::value& conversation : conversations.as_array()) {
    // The template writes the BOS itself.
    EXPECT_EQ(tokenizer->encode(string_of(conversation.at("prompt")), false),
              ids_of(conversation.at("prompt_ids")));
    const auto ids = ids_of(conversation.at("greedy_ids"));
    EXPECT_EQ(decode_in_pieces(*tokenizer, ids, true), tokenizer->decode(ids, true));
  }
  EXPECT_EQ(tokenizer->vocab_size(), 4096u);
  EXPECT_EQ(tokenizer->encode("Hi", true).front(), tokenizer->find_token("<|begin_of_text|>"));
}

TEST(TokenizerReference, TinyStoriesKeepsEveryText) {
  QUIRE_NEEDS_DATA("tokenizer-hf-json");
  const auto tokenizer = hf_tokenizer("tinystories_bpe4096");
  EXPECT_EQ(tokenizer->vocab_size(), 4096u);
  EXPECT_EQ(tokenizer->encode("<|endoftext|>", false), std::vector<TokenId>{0});
  const std::string story =
      "Once upon a time, there was a little girl named Lily. She didn't like 12 cats!\n";
  const auto ids = tokenizer->encode(story, true);
  EXPECT_EQ(tokenizer->decode(ids, true), story);
  EXPECT_LT(ids.size(), story.size() / 3);
}

}  // namespace
}  // namespace quire::tokenize
