// What the control plane costs per step, without an executor: plan() and commit() apart, for sequences of
// 256 to 1,024 tokens that all decode.
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

void add(Scheduler& scheduler, SeqId id, std::vector<TokenId> prompt, uint32_t max_tokens) {
  SeqSpec spec;
  spec.id = id;
  spec.prompt = std::move(prompt);
  spec.max_tokens = max_tokens;
  if (!scheduler.add(std::move(spec))) std::abort();
}

StepResult sample(const StepPlan& plan) {
  StepResult result;
  result.seqs.resize(plan.seqs.size());
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    if (plan.seqs[i].rows == LogitRows::kLast) result.seqs[i].tokens.resize(1);
  }
  return result;
}

void step(Scheduler& scheduler) {
  const StepPlan plan = scheduler.plan(0);
  scheduler.commit(plan, sample(plan));
}

/// `num_seqs` sequences decode. If `blocked`, another waits that has kLongPrompt tokens in the prefix cache
/// and lacks blocks for the rest: it is looked up in every step.
std::unique_ptr<Scheduler> running(uint32_t num_seqs, bool blocked) {
  SchedulerConfig config;
  config.num_blocks = num_seqs * (kPrompt + kSteps) / config.block_size + kLongPrompt / config.block_size;
  config.max_num_seqs = num_seqs + 1;
  config.max_num_batched_tokens = 1 << 20;
  config.max_model_len = 1 << 20;
  auto owned = std::make_unique<Scheduler>(config);
  Scheduler& scheduler = *owned;
  add(scheduler, 0, text(kLongPrompt, 1'000'000), 1);
  step(scheduler);
  for (SeqId id = 1; id <= num_seqs; ++id) {
    add(scheduler, id, text(kPrompt, static_cast<TokenId>(id * 1000)), kSteps + 10);
  }
  step(scheduler);
  if (blocked) {
    add(scheduler, num_seqs + 1, text((config.num_blocks - 10) * config.block_size, 1'000'000), 1);
  }
  return owned;
}

template <Part part, bool blocked = false>
void decode(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  const auto num_seqs = static_cast<uint32_t>(state.range(0));
  auto scheduler = running(num_seqs, blocked);
  uint32_t steps = 0;
  for (auto _ : state) {
    if (++steps == kSteps - 10) {
      scheduler = running(num_seqs, blocked);
      steps = 0;
    }
    const auto start = Clock::now();
    const StepPlan plan = scheduler->plan(0);
    const auto planned = Clock::now();
    StepResult result = sample(plan);
    const auto executed = Clock::now();
    benchmark::DoNotOptimize(scheduler->commit(plan, std::move(result)));
    const auto end = Clock::now();
    const std::chrono::duration<double> took = part == Part::kPlan ? planned - start : end - executed;
    state.SetIterationTime(took.count());
  }
  if (scheduler->stats().running != num_seqs) state.SkipWithError("not what was to be measured");
}

BENCHMARK(decode<Part::kPlan>)->Arg(1)->Arg(64)->Arg(256)->UseManualTime();
BENCHMARK(decode<Part::kCommit>)->Arg(1)->Arg(64)->Arg(256)->UseManualTime();
BENCHMARK(decode<Part::kPlan, true>)
    ->Name("decode<Part::kPlan, a prompt waits for blocks>")
    ->Arg(64)
    ->UseManualTime();

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
