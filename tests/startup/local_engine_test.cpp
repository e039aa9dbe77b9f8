// An engine from a model's path and options, without a command line.
#include "startup/local_engine.h"

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "startup/cuda_device.h"
#include "tests/support/data.h"

namespace quire::startup {
namespace {

using testing::HasSubstr;

EngineOptions demo(const char* device = "cpu") {
  EngineOptions options;
  options.model.model = test::demo_model_dir();
  options.model.threads = 1;
  options.num_blocks = 24;
  options.max_num_batched_tokens = "64";
  options.device = find_device(device).device;
  return options;
}

/// The answer of eight tokens to a prompt, and how many tokens of the prompt were cached.
std::pair<std::string, uint32_t> answer(LocalEngine& local, const std::string& prompt) {
  engine::GenerationRequest request;
  request.prompt = local.tokenizer->encode(prompt, true);
  request.max_tokens = 8;
  request.sampling.temperature = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::string text;
  uint32_t cached = 0;
  bool done = false;
  const auto sink = [&](const engine::RequestOutput& output) {
    const std::lock_guard lock(mutex);
    for (const engine::ChoiceOutput& choice : output.choices) text += choice.text;
    cached = output.cached_tokens;
    done = output.done;
    changed.notify_one();
  };
  EXPECT_TRUE(local.engine->submit(std::move(request), sink));
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
  return {text, cached};
}

/// All that came of a request.
engine::RequestOutput all_of(LocalEngine& local, engine::GenerationRequest request) {
  std::mutex mutex;
  std::condition_variable changed;
  engine::RequestOutput all;
  const auto sink = [&](engine::RequestOutput output) {
    const std::lock_guard lock(mutex);
    std::ranges::move(output.prompt.rows, std::back_inserter(all.prompt.rows));
    if (!output.prompt.pooled.empty()) all.prompt.pooled = output.prompt.pooled;
    if (all.choices.empty()) all.choices.resize(1);
    for (engine::ChoiceOutput& choice : output.choices) {
      std::ranges::move(choice.tokens, std::back_inserter(all.choices[0].tokens));
    }
    all.done = output.done;
    changed.notify_one();
  };
  EXPECT_TRUE(local.engine->submit(std::move(request), sink));
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return all.done; });
  return all;
}

std::string refusal_of(const EngineOptions& options) {
  try {
    const LocalEngine local(options, "demo");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LocalEngine, AnswersOnEveryDeviceThatIsHere) {
  for (const Device& device : devices()) {
    if (device.has_several && !why_no_cuda(0).empty()) continue;
    EngineOptions options = demo();
    options.device = &device;
    options.sim_speed = 1000;
    LocalEngine local(options, "demo");
    EXPECT_EQ(local.config.scheduler.num_blocks, 24U);
    EXPECT_EQ(local.config.scheduler.max_num_batched_tokens, 64U);
    EXPECT_NE(answer(local, "Once upon a time").first, "") << device.name;
  }
}

TEST(LocalEngine, RefusesAnOptionOfGpusOnTheCpu) {
  EngineOptions options = demo();
  options.gpu_memory_utilization = 0.5;
  EXPECT_THAT(refusal_of(options), HasSubstr("--gpu-memory-utilization: is for --device cuda"));
  options = demo();
  options.fast_gemm = true;
  EXPECT_THAT(refusal_of(options), HasSubstr("--fast-gemm: is for --device cuda"));
  options.device = find_device("sim").device;
  EXPECT_THAT(refusal_of(options), HasSubstr("--fast-gemm: is for --device cuda"));
}

TEST(LocalEngine, BeginsWithThePrefixCacheThatItLeft) {
  const std::string story =
      "Once upon a time there was a little fox who lived in a big forest. Every day the fox went to the "
      "river";
  EngineOptions options = demo();
  options.prefix_cache_file = test::temp_dir() / "prefixes";
  std::pair<std::string, uint32_t> first;
  {
    LocalEngine local(options, "demo");
    first = answer(local, story);
    EXPECT_EQ(first.second, 0U);
  }
  LocalEngine again(options, "demo");
  const auto second = answer(again, story);
  EXPECT_EQ(second.first, first.first);
  EXPECT_GE(second.second, 16U);
}

/// What was sampled has the same figures, to the bit, as rows of a prompt that it continues.
TEST(LocalEngine, RatesAPromptAsItRatedWhatItSampled) {
  LocalEngine local(demo(), "demo");
  engine::GenerationRequest request;
  request.prompt = local.tokenizer->encode("Once upon a time there was a", true);
  request.max_tokens = 20;
  request.ignore_eos = true;
  request.sampling.num_logprobs = 4;
  const std::vector<SampledToken> said = all_of(local, request).choices[0].tokens;
  ASSERT_EQ(said.size(), 20U);
  const auto first = static_cast<uint32_t>(request.prompt.size()) - 1;
  for (const SampledToken& token : said) request.prompt.push_back(token.token);
  request.max_tokens = 0;
  request.wants = {.logprobs = 4, .first_row = first, .pooling = Pooling::kLast};
  const engine::RequestOutput rated = all_of(local, request);
  EXPECT_TRUE(rated.choices[0].tokens.empty());
  EXPECT_EQ(rated.prompt.pooled.size(), local.facts.hidden_size);
  ASSERT_EQ(rated.prompt.rows.size(), 20U);
  for (uint32_t i = 0; i < 20; ++i) {
    const PromptRow& row = rated.prompt.rows[i];
    EXPECT_EQ(row.row, first + i);
    EXPECT_EQ(row.next.token, said[i].token);
    EXPECT_EQ(row.next.logprob, said[i].logprob);
    EXPECT_EQ(row.next.rank, said[i].rank);
    ASSERT_EQ(row.next.top.size(), 4U);
    for (uint32_t k = 0; k < 4; ++k) EXPECT_EQ(row.next.top[k].logprob, said[i].top[k].logprob);
  }
}

TEST(LocalEngine, NamesTheOptionAtFault) {
  EngineOptions options = demo();
  options.block_size = 24;
  EXPECT_EQ(refusal_of(options), "--block-size: 24 is not a multiple of 16");
  options = demo();
  options.max_num_batched_tokens = "few";
  EXPECT_THAT(refusal_of(options), HasSubstr("--max-num-batched-tokens: 'few'"));
  options = demo();
  options.model.model = "/nowhere/model";
  EXPECT_THAT(refusal_of(options), HasSubstr("no such file or directory"));
  for (const char* device : {"cpu", "sim"}) {
    options = demo(device);
    options.max_model_len = 1'000'000;
    EXPECT_THAT(refusal_of(options), HasSubstr("--max-model-len: 1000000")) << device;
  }
  options = demo("sim");
  options.prefix_cache_file = test::temp_dir() / "prefixes of nothing";
  EXPECT_EQ(refusal_of(options), "--prefix-cache-file: there is no prefix cache to keep");
}

}  // namespace
}  // namespace quire::startup
