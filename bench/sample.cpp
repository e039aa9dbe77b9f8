// What sampling one token costs, by what is asked for, over a vocabulary of 128k.
#include <algorithm>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "sample/sampler.h"

namespace quire::sample {
namespace {

constexpr size_t kVocabulary = 128'256;

std::vector<float> some_logits() {
  SplitMix64 random(1);
  std::vector<float> logits(kVocabulary);
  for (float& x : logits) {
    for (int i = 0; i < 4; ++i) x += static_cast<float>(unit_interval(random.next())) * 6.0F - 3.0F;
  }
  return logits;
}

void sample(benchmark::State& state, void (*ask)(SamplingParams&)) {
  const std::vector<float> logits = some_logits();
  std::vector<TokenId> history;
  for (TokenId i = 0; i < 1000; ++i) history.push_back((i * 37) % 500);
  SamplingParams params;
  params.seed = 7;
  ask(params);
  SequenceSampler sampler;
  sampler.reset(params, history, 800);
  SamplerWorkspace workspace(kVocabulary);
  SampledToken out;
  out.top.reserve(20);
  uint32_t position = 1000;
  for (auto _ : state) {
    if (!sampler.sample(logits, position++, workspace, out).why.empty()) state.SkipWithError("no token");
    benchmark::DoNotOptimize(out.token);
  }
}

BENCHMARK_CAPTURE(sample, greedy, [](SamplingParams& p) { p.temperature = 0.0F; });
BENCHMARK_CAPTURE(sample, temperature, [](SamplingParams& p) { p.temperature = 0.8F; });
BENCHMARK_CAPTURE(sample, top_p, [](SamplingParams& p) { p.top_p = 0.9F; });
BENCHMARK_CAPTURE(sample, top_k, [](SamplingParams& p) { p.top_k = 50; });
BENCHMARK_CAPTURE(sample, logprobs, [](SamplingParams& p) { p.num_logprobs = 20; });
BENCHMARK_CAPTURE(sample, penalties, [](SamplingParams& p) {
  p.repetition_penalty = 1.1F;
  p.frequency_penalty = 0.2F;
});
BENCHMARK_CAPTURE(sample, bias, [](SamplingParams& p) {
  for (TokenId id = 0; id < 300; ++id) p.logit_bias.write().emplace_back(id * 400, 0.5F);
});

}  // namespace
}  // namespace quire::sample

BENCHMARK_MAIN();
