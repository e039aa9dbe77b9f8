// What a shadow costs the engine's thread: each step, where so many sequences decode; and each request that
// arrives, where so many wait.

#include "engine/shadow.h"

#include <cstdint>

#include <benchmark/benchmark.h>

#include "backend/step_work.h"
#include "base/clock.h"
#include "control/scheduler.h"

namespace quire {
namespace {

/// As much arithmetic as a fitted model has: ten terms and as many pieces as there are powers of two, in two
/// phases.
engine::StepCost cost_of(const backend::StepWork& work) {
  const auto phase = [&](double part) {
    double time = 1e6;
    backend::StepWork::for_each_count(
        work, [&](auto, uint64_t count) { time += part * static_cast<double>(count); });
    for (uint64_t knot = 1; knot < work.tokens(); knot *= 2)
      time += part * static_cast<double>(work.tokens() - knot);
    return time;
  };
  return {phase(100), phase(1)};
}

/// With the count of the step's work and the reading of the clock, which a step log would need too.
void shadow_step(benchmark::State& state) {
  control::StepPlan plan;
  for (int64_t i = 0; i < state.range(0); ++i) {
    control::SeqStep& seq = plan.seqs.emplace_back();
    seq.first_position = 500;
    seq.rows = control::LogitRows::kLast;
    seq.tokens.push_back(1);
  }
  const SteadyClock clock;
  engine::Shadow shadow(cost_of, "bench", false);
  for (auto _ : state) {
    backend::StepRecord record;
    Nanos begun = 0;
    for (int reading = 0; reading < 3; ++reading) begun = clock.now();  // as StepObserver does
    record.work = backend::work_of(plan);
    record.compute = static_cast<int64_t>(cost_of(record.work).device);
    record.whole = record.compute + begun % 1000;
    shadow.take(record);
  }
}
BENCHMARK(shadow_step)->Arg(1)->Arg(64)->Arg(256);

/// 64 sequences decode, and others wait: each of a tenant of its own, if the policy is `fair`. With promises,
/// the forecast goes on to the last one.
void foresee_request(benchmark::State& state, control::SchedulingKind scheduling, bool promises) {
  const auto waiting = static_cast<uint64_t>(state.range(0));
  control::SchedulerConfig config;
  config.scheduling = scheduling;
  config.num_blocks = 1 << 17;
  config.max_num_seqs = 64;
  config.max_num_batched_tokens = 512;
  config.max_model_len = 4096;
  config.max_waiting = 1 << 16;
  control::Scheduler scheduler(config);
  const auto spec_of = [](uint64_t id, size_t length) {
    control::SeqSpec spec;
    spec.id = spec.tenant = id;
    for (size_t i = 0; i < length; ++i) spec.prompt.push_back(static_cast<TokenId>(id * 1000 + i));
    spec.max_tokens = 200 + static_cast<uint32_t>(id * 37 % 100);
    return spec;
  };
  uint64_t next = 0;
  const auto add = [&](size_t length) {
    if (!scheduler.add(spec_of(next++, length))) state.SkipWithError("refused");
  };
  for (int i = 0; i < 64; ++i) add(100);
  for (int i = 0; i < 40; ++i) {
    const control::StepPlan plan = scheduler.plan();
    control::StepResult result;
    for (const control::SeqStep& seq : plan.seqs) {
      control::SeqResult& of = result.seqs.emplace_back();
      if (seq.rows == control::LogitRows::kLast) of.token = SampledToken{.token = 7};
    }
    scheduler.commit(plan, std::move(result));
  }
  for (uint64_t i = 0; i < waiting; ++i) add(300);
  engine::Shadow shadow(cost_of, "bench", promises);
  const control::SeqSpec spec = spec_of(next, 300);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        shadow.foresee(scheduler, scheduler.pool().cache(), {.spec = spec, .runs_on = true}, 0, {512}));
  }
}

void foresee_rows(benchmark::internal::Benchmark* bench) {
  bench->Arg(0)->Arg(8)->Arg(64)->Arg(1024)->Arg(4096)->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(foresee_request, fcfs, control::SchedulingKind::kFcfs, false)->Apply(foresee_rows);
BENCHMARK_CAPTURE(foresee_request, fair, control::SchedulingKind::kFair, false)->Apply(foresee_rows);
BENCHMARK_CAPTURE(foresee_request, fcfs_promises, control::SchedulingKind::kFcfs, true)->Apply(foresee_rows);
BENCHMARK_CAPTURE(foresee_request, fair_promises, control::SchedulingKind::kFair, true)->Apply(foresee_rows);

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
