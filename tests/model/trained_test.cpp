#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/json.h"
#include "formats/convert_llama2c.h"
#include "formats/safetensors.h"
#include "tests/model/runner.h"
#include "tests/support/data.h"
#include "tokenize/tokenizer.h"

// Trained models: stories260K as converted from llama2.c, and the demo model.
namespace quire::model {
namespace {

using test::Runner;

std::vector<TokenId> id_list(const json::value& value) {
  std::vector<TokenId> out;
  for (const json::value& id : value.as_array()) out.push_back(id.to_number<TokenId>());
  return out;
}

std::filesystem::path stories() { return test::data_dir() / "stories260k"; }

std::filesystem::path converted(const char* checkpoint) {
  const auto dir = test::temp_dir() / "converted";
  formats::convert_llama2c(stories() / checkpoint, stories() / "tok512.bin", dir);
  return dir;
}

class Stories260K : public testing::TestWithParam<kernels::IsaLevel> {};

TEST_P(Stories260K, LogitsAndGreedyTokensEqualLlama2c) {
  QUIRE_NEEDS_DATA("stories260k");
  Runner runner(converted("stories260K.bin"), GetParam(), 2);
  for (const char* name : {"golden_greedy_200.json", "golden_greedy_prompt.json"}) {
    const json::value golden = read_json_file(stories() / name);
    const auto ids = id_list(golden.at("token_ids_in"));
    const auto logits = runner.all_logits(ids, 16);
    const size_t vocab = runner.config().vocab_size;
    ASSERT_EQ(logits.size(), ids.size() * vocab);
    for (const json::value& entry : golden.at("logits").as_array()) {
      const auto position = entry.at("pos").to_number<size_t>();
      const std::span<const float> row(logits.data() + position * vocab, vocab);
      EXPECT_EQ(Runner::best(row), entry.at("argmax").to_number<TokenId>()) << name << " " << position;
      for (const json::value& pair : entry.at("top5").as_array()) {
        EXPECT_NEAR(row[pair.at(0).to_number<size_t>()], pair.at(1).to_number<double>(), 1e-3)
            << name << " " << position;
      }
    }
    // From the first id on (BOS), and from the end of the prompt on, arg max walks the same way.
    const auto* const prompt = golden.as_object().if_contains("prompt");
    const size_t given = prompt->get_string().empty() ? 1 : 14;
    const auto greedy = runner.greedy(std::span(ids).first(given), ids.size() - given, 7);
    EXPECT_EQ(greedy.ids, std::vector<TokenId>(ids.begin() + static_cast<ptrdiff_t>(given), ids.end()));
  }
}

TEST_P(Stories260K, Int8CheckpointStaysClose) {
  QUIRE_NEEDS_DATA("stories260k");
  Runner plain(converted("stories260K.bin"), GetParam(), 1);
  Runner int8(converted("stories260K-q8.bin"), GetParam(), 1);
  const json::value golden = read_json_file(stories() / "golden_greedy_200.json");
  const auto ids = id_list(golden.at("token_ids_in"));
  const auto a = plain.all_logits(ids, ids.size());
  const auto b = int8.all_logits(ids, ids.size());
  ASSERT_EQ(a.size(), b.size());
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  EXPECT_LT(sum / static_cast<double>(a.size()), 0.2);
}

INSTANTIATE_TEST_SUITE_P(Isa, Stories260K, testing::ValuesIn(kernels::available_isa_levels()),
                         [](const auto& test_case) {
                           std::string name(kernels::isa_name(test_case.param));
                           std::erase(name, '-');
                           return name;
                         });

TEST(ConvertLlama2c, TokenizerEncodesAndDecodesAsLlama2c) {
  QUIRE_NEEDS_DATA("stories260k");
  const auto tokenizer = tokenize::Tokenizer::load(converted("stories260K.bin"));
  for (const char* name : {"golden_greedy_200.json", "golden_greedy_prompt.json"}) {
    const json::value golden = read_json_file(stories() / name);
    const auto ids = id_list(golden.at("token_ids_in"));
    const std::string prompt(golden.at("prompt").as_string());
    const auto encoded = tokenizer->encode(prompt, true);
    ASSERT_LE(encoded.size(), ids.size());
    EXPECT_EQ(encoded,
              std::vector<TokenId>(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(encoded.size())));
    EXPECT_EQ(encoded.size(), prompt.empty() ? 1U : 14U);
    const std::string text = tokenizer->decode(ids, true);
    EXPECT_EQ(text, std::string_view(golden.at("text").as_string()).substr(0, text.size()));
    EXPECT_GT(text.size(), 200U);
  }
}

// What llama2.c's run.c does: characters, else bytes; then the pair of the best score, leftmost first.
std::vector<TokenId> encode_by_score(const std::string& text, const std::vector<std::string>& pieces,
                                     const std::vector<float>& scores) {
  const auto lookup = [&](const std::string& piece) {
    const auto found = std::find(pieces.begin(), pieces.end(), piece);
    return found == pieces.end() ? TokenId{-1} : static_cast<TokenId>(found - pieces.begin());
  };
  std::vector<TokenId> ids;
  if (!text.empty()) ids.push_back(lookup(" "));
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) ++end;
    const TokenId id = lookup(text.substr(at, end - at));
    if (id >= 0) {
      ids.push_back(id);
    } else {
      for (size_t i = at; i < end; ++i) ids.push_back(static_cast<unsigned char>(text[i]) + 3);
    }
    at = end;
  }
  while (true) {
    float best_score = -1e10F;
    TokenId best_id = -1;
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const TokenId id =
          lookup(pieces[static_cast<size_t>(ids[i])] + pieces[static_cast<size_t>(ids[i + 1])]);
      if (id >= 0 && scores[static_cast<size_t>(id)] > best_score) {
        best_score = scores[static_cast<size_t>(id)];
        best_id = id;
        best_at = i;
      }
    }
    if (best_id < 0) return ids;
    ids[best_at] = best_id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

TEST(ConvertLlama2c, MergesByRankEqualMergesByScore) {
  QUIRE_NEEDS_DATA("stories260k");
  const std::string bytes = read_file(stories() / "tok512.bin");
  std::vector<std::string> pieces;
  std::vector<float> scores;
  for (size_t at = 4; at < bytes.size();) {
    uint32_t length = 0;
    std::memcpy(&scores.emplace_back(), &bytes[at], 4);
    std::memcpy(&length, &bytes[at + 4], 4);
    pieces.push_back(bytes.substr(at + 8, length));
    at += 8 + length;
  }
  const auto tokenizer = tokenize::Tokenizer::load(converted("stories260K.bin"));
  const std::vector<std::string> texts = {"Once upon a time, there was a little girl named Lily.",
                                          "She loved to play outside in the park with her friend, Tom!",
                                          "aaa aaaa aaaaa  bbbb   ssss",
                                          "Zoë ate 12 crêpes \xF0\x9F\x98\x80 at 5 o'clock.",
                                          " ",
                                          "   ",
                                          "\n\n\"Hello,\" he said.\n\tThen he left.",
                                          "The the THE tHe",
                                          "x"};
  for (const std::string& text : texts) {
    EXPECT_EQ(tokenizer->encode(text, false), encode_by_score(text, pieces, scores)) << text;
  }
}

std::string convert_error(const std::filesystem::path& checkpoint, const std::filesystem::path& tokenizer) {
  try {
    formats::convert_llama2c(checkpoint, tokenizer, test::temp_dir() / "out");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ConvertLlama2c, BrokenFilesAreErrors) {
  QUIRE_NEEDS_DATA("stories260k");
  const auto dir = test::temp_dir();
  const auto store = [&](const char* name, const std::string& bytes) {
    std::ofstream(dir / name, std::ios::binary) << bytes;
    return dir / name;
  };
  const std::string tokens = read_file(stories() / "tok512.bin");
  for (const char* name : {"stories260K.bin", "stories260K-q8.bin"}) {
    const std::string bytes = read_file(stories() / name);
    for (size_t size = 1; size < bytes.size(); size += size < 300 ? 1 : bytes.size() / 20) {
      EXPECT_NE(convert_error(store("cut.bin", bytes.substr(0, size)), stories() / "tok512.bin"), "no error");
    }
    for (size_t at = 0; at < 64; ++at) {
      for (const char value : {'\x00', '\x7f', '\xff'}) {
        std::string broken = bytes;
        broken[at] = value;
        convert_error(store("broken.bin", broken), stories() / "tok512.bin");  // whatever, no crash
      }
    }
  }
  const auto good = stories() / "stories260K.bin";
  for (size_t size = 0; size < tokens.size(); size += 13) {
    EXPECT_THAT(convert_error(good, store("t.bin", tokens.substr(0, size))), testing::HasSubstr("t.bin"));
  }
  EXPECT_THAT(convert_error(good, store("t.bin", tokens + "x")), testing::HasSubstr("continues after"));
  EXPECT_THAT(convert_error(store("b.bin", read_file(good) + "x"), stories() / "tok512.bin"),
              testing::HasSubstr("b.bin: "));
}

TEST(DemoModel, GreedyEqualsTransformersInF32) {
  const auto dir = test::demo_model_dir();
  const json::value cases = read_json_file(dir / "expected_greedy_f32.json");
  for (const kernels::IsaLevel isa : {kernels::IsaLevel::kReference, kernels::best_isa_level()}) {
    Runner runner(dir, isa, 2, DType::kF32);
    size_t compared = 0;
    for (const json::value& entry : cases.as_array()) {
      const auto prompt = id_list(entry.at("prompt_ids"));
      const auto expected = id_list(entry.at("greedy_ids"));
      const auto& gaps = entry.at("gaps").as_array();
      const auto greedy = runner.greedy(prompt, expected.size(), 16);
      for (size_t i = 0; i < expected.size(); ++i) {
        if (gaps[i].to_number<double>() < 0.01) break;  // rounding may choose otherwise from here on
        EXPECT_EQ(greedy.ids[i], expected[i]) << "token " << i;
        ++compared;
      }
    }
    EXPECT_GT(compared, 300U);
  }
}

TEST(DemoModel, RowsAskedForAreThoseComputed) {
  Runner runner(test::demo_model_dir(), kernels::best_isa_level(), 1);
  const std::vector<TokenId> ids = {4091, 4093, 451, 269, 4094, 294};
  const size_t vocab = runner.config().vocab_size;
  const auto all = runner.all_logits(ids, ids.size());
  runner.reset();
  EXPECT_TRUE(runner.step({{0, ids, 0}}).empty());
  runner.reset();
  EXPECT_EQ(runner.step({{0, ids, 1}}),
            std::vector<float>(all.end() - static_cast<ptrdiff_t>(vocab), all.end()));
  runner.reset();
  EXPECT_EQ(runner.step({{0, ids, 2}}),
            std::vector<float>(all.end() - static_cast<ptrdiff_t>(2 * vocab), all.end()));
}

TEST(DemoModel, MisuseIsAnError) {
  Runner runner(test::demo_model_dir(), kernels::best_isa_level(), 1);
  using Tables = std::vector<std::vector<BlockId>>;
  const Tables table = {{0}};
  const Tables outside = {{9999}};
  const Tables two = {{0}, {1}};
  const auto forward = [&](std::vector<TokenId> tokens, decoder::BatchSeq seq) {
    runner.decoder().forward(runner.context(), runner.cache(), tokens, std::span(&seq, 1));
  };
  EXPECT_THROW(forward({4096}, {1, 0, table, 1}), Error);
  EXPECT_THROW(forward({-1}, {1, 0, table, 1}), Error);
  EXPECT_THROW(forward({1}, {1, 16, table, 1}), Error);
  EXPECT_THROW(forward({1}, {1, 0, outside, 1}), Error);
  EXPECT_THROW(forward({1}, {1, 0, two, 1}), Error);
  EXPECT_THROW(forward({1}, {2, 0, table, 1}), Error);
  EXPECT_THROW(forward({1}, {1, 0, table, 2}), Error);
  EXPECT_NO_THROW(forward({1}, {1, 15, table, 1}));
}

TEST(DemoModel, CopiedBlocksServeAsWell) {
  Runner runner(test::demo_model_dir(), kernels::best_isa_level(), 1);
  backend::cpu::KvCache& cache = runner.cache();
  const std::vector<TokenId> ids = {4091, 4093, 451, 269, 4094, 294};
  const auto step = [&](std::vector<TokenId> tokens, uint32_t first, BlockId block) {
    const std::vector<std::vector<BlockId>> tables = {{block}};
    const decoder::BatchSeq seq{static_cast<uint32_t>(tokens.size()), first, tables, 1};
    const auto logits = runner.decoder().forward(runner.context(), cache, tokens, std::span(&seq, 1));
    return std::vector<float>(logits.begin(), logits.end());
  };
  step(ids, 0, 5);
  const auto original = step({709}, 6, 5);
  cache.copy_block(cache, 5, 9);
  step({1, 2, 3, 4, 5, 6}, 0, 5);
  EXPECT_EQ(step({709}, 6, 9), original);
}

TEST(KvCache, RefusesWhatCannotBe) {
  ModelConfig config;
  config.num_layers = 4096;
  config.windows.resize(config.num_layers);
  config.num_kv_heads = 4096;
  config.head_dim = 1024;
  EXPECT_THROW(backend::cpu::KvCache(config, DType::kF32, UINT32_MAX, 1U << 20), Error);
}

}  // namespace
}  // namespace quire::model
