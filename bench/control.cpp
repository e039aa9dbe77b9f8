// What the control plane costs per step, without an executor: plan() and commit(), together and apart, for
// sequences that all decode; with more and more blocks in the prefix cache; and a prefix lookup.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

#include <benchmark/benchmark.h>

#include "control/scheduler.h"

namespace quire {
namespace {

enum class Part { kPlan, kCommit };

constexpr uint32_t kPrompt = 256;
constexpr uint32_t kLongPrompt = 4000;
constexpr uint32_t kSteps = 768;  // then afresh

std::vector<TokenId> text(uint32_t length, TokenId first) {
  std::vector<TokenId> tokens(length);
  for (TokenId& token : tokens) token = first++;
  return tokens;
}

void add(control::Scheduler& scheduler, SeqId id, std::vector<TokenId> prompt, uint32_t max_tokens) {
  control::SeqSpec spec;
  spec.id = id;
  spec.prompt = std::move(prompt);
  spec.max_tokens = max_tokens;
  if (!scheduler.add(std::move(spec))) std::abort();
}

control::StepResult sample(const control::StepPlan& plan) {
  control::StepResult result;
  result.seqs.resize(plan.seqs.size());
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    if (plan.seqs[i].rows == control::LogitRows::kLast) result.seqs[i].token.emplace();
  }
  return result;
}

void step(control::Scheduler& scheduler) {
  const control::StepPlan plan = scheduler.plan();
  scheduler.commit(plan, sample(plan));
}

/// `num_seqs` sequences decode. If `blocked`, another waits that has kLongPrompt tokens in the prefix cache
/// and lacks blocks for the rest: it is looked up in every step.
std::unique_ptr<control::Scheduler> running(uint32_t num_seqs, bool blocked) {
  control::SchedulerConfig config;
  config.num_blocks = num_seqs * (kPrompt + kSteps) / config.block_size + kLongPrompt / config.block_size;
  config.max_num_seqs = num_seqs + 1;
  config.max_num_batched_tokens = 1 << 20;
  config.max_model_len = 1 << 20;
  auto made = std::make_unique<control::Scheduler>(config);
  control::Scheduler& scheduler = *made;
  add(scheduler, 0, text(kLongPrompt, 1'000'000), 1);
  step(scheduler);
  for (SeqId id = 1; id <= num_seqs; ++id) {
    add(scheduler, id, text(kPrompt, static_cast<TokenId>(id * 1000)), kSteps + 10);
  }
  step(scheduler);
  if (blocked) {
    add(scheduler, num_seqs + 1, text((config.num_blocks - 10) * config.block_size, 1'000'000), 1);
  }
  return made;
}

template <Part part, bool blocked = false>
void decode(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  const auto num_seqs = static_cast<uint32_t>(state.range(0));
  std::unique_ptr<control::Scheduler> scheduler = running(num_seqs, blocked);
  uint32_t steps = 0;
  for (auto _ : state) {
    if (++steps == kSteps - 10) {
      scheduler = running(num_seqs, blocked);
      steps = 0;
    }
    const auto start = Clock::now();
    const control::StepPlan plan = scheduler->plan();
    const auto planned = Clock::now();
    control::StepResult result = sample(plan);
    const auto executed = Clock::now();
    benchmark::DoNotOptimize(scheduler->commit(plan, std::move(result)));
    const auto end = Clock::now();
    const std::chrono::duration<double> took = part == Part::kPlan ? planned - start : end - executed;
    state.SetIterationTime(took.count());
  }
  if (scheduler->stats().running != num_seqs) state.SkipWithError("not what was to be measured");
}

/// plan + commit of a step in which `num_seqs` sequences of about 1,000 tokens decode, beside `cached` blocks
/// that nobody holds.
void step_of(benchmark::State& state, uint32_t num_seqs, uint32_t cached) {
  using Clock = std::chrono::steady_clock;
  constexpr uint32_t kLength = 1000;
  constexpr uint32_t kMost = 64;  // tokens that they grow before they are made afresh
  control::SchedulerConfig config;
  config.num_blocks = num_seqs * ((kLength + kMost) / config.block_size + 2) * 102 / 100 + cached + 2;
  config.max_num_seqs = num_seqs;
  config.max_num_batched_tokens = 1 << 30;
  config.max_model_len = 1 << 30;
  config.max_waiting = 1 << 30;
  control::Scheduler scheduler(config);
  SeqId id = 0;
  // In chains of at most 64 blocks, as many conversations leave them.
  for (uint32_t left = cached; left > 0;) {
    const uint32_t chain = std::min(left, 64U);
    add(scheduler, id, text(chain * config.block_size, static_cast<TokenId>(id * 2000)), 1);
    step(scheduler);
    left -= chain;
    ++id;
  }
  const auto start_afresh = [&] {
    for (uint32_t i = 0; i < num_seqs; ++i) {
      add(scheduler, id, text(kLength, static_cast<TokenId>(id * 2000)), kMost);
      ++id;
    }
    step(scheduler);
  };
  for (auto _ : state) {
    if (!scheduler.has_work()) start_afresh();
    const auto start = Clock::now();
    const control::StepPlan plan = scheduler.plan();
    const auto planned = Clock::now();
    control::StepResult result = sample(plan);
    const auto executed = Clock::now();
    benchmark::DoNotOptimize(scheduler.commit(plan, std::move(result)));
    const auto end = Clock::now();
    state.SetIterationTime(std::chrono::duration<double>((planned - start) + (end - executed)).count());
  }
  if (scheduler.stats().blocks_cached < cached) state.SkipWithError("the cached blocks are gone");
}

void step_by_running(benchmark::State& state) { step_of(state, static_cast<uint32_t>(state.range(0)), 0); }
void step_by_cached(benchmark::State& state) { step_of(state, 64, static_cast<uint32_t>(state.range(0))); }

/// Looks up a prompt of 50,000 tokens that the prefix cache holds, but for its end.
void prefix_lookup(benchmark::State& state) {
  constexpr uint32_t kTokens = 50'000;
  constexpr uint32_t kBlock = 16;
  control::PrefixCache cache(kTokens / kBlock + 1, kBlock,
                             control::make_eviction(control::EvictionKind::kLru, kTokens / kBlock + 1));
  const std::vector<TokenId> prompt = text(kTokens, 0);
  control::NodeId node = control::kNoNode;
  for (uint32_t i = 0; i < kTokens / kBlock; ++i) {
    node = cache.publish(node, std::span(prompt).subspan(size_t{i} * kBlock, kBlock), 0);
    cache.attach(node, 0, i);
  }
  control::Prefix found;
  for (auto _ : state) {
    cache.match(prompt, 0, found);
    benchmark::DoNotOptimize(found.num_rows);
  }
  if (found.num_rows != (kTokens - 1) / kBlock) state.SkipWithError("not what was to be measured");
}

BENCHMARK(step_by_running)->Arg(1)->Arg(16)->Arg(64)->Arg(256)->Arg(1024)->UseManualTime();
BENCHMARK(step_by_cached)->RangeMultiplier(10)->Range(1000, 1'000'000)->UseManualTime();
BENCHMARK(prefix_lookup)->Unit(benchmark::kMicrosecond);
BENCHMARK(decode<Part::kPlan>)->Arg(1)->Arg(64)->Arg(256)->UseManualTime();
BENCHMARK(decode<Part::kCommit>)->Arg(1)->Arg(64)->Arg(256)->UseManualTime();
BENCHMARK(decode<Part::kPlan, true>)
    ->Name("decode<Part::kPlan, a prompt waits for blocks>")
    ->Arg(64)
    ->UseManualTime();

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
