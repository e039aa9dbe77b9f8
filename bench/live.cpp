// What a reader of the live view costs per step, for so many sequences that all decode and so many K/V
// groups: the scheduler's thread (plan and commit, with nobody watching and with a tap), and the thread that
// follows it and writes the messages.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include <benchmark/benchmark.h>

#include "record/live_run.h"
#include "record/recorded_scheduler.h"

namespace quire {
namespace {

constexpr uint32_t kPrompt = 256;
constexpr uint32_t kWindow = 512;
constexpr uint32_t kSteps = 700;        // then afresh
constexpr uint32_t kStepsAtATime = 10;  // that are told together
enum class Who { kNobody, kTap, kFollower };

struct Run {
  Run(uint32_t num_seqs, uint32_t num_groups, bool watched)
      : scheduler(config_of(num_seqs, num_groups), nullptr) {
    if (watched) scheduler.watch(&tap, [](SeqId) { return "cmpl-0123456789abcdef"; });
    for (SeqId id = 0; id < num_seqs; ++id) {
      control::SeqSpec spec;
      spec.id = id;
      spec.prompt = std::vector<TokenId>(kPrompt, static_cast<TokenId>(id));
      spec.max_tokens = kSteps + 10;
      if (!scheduler.add(spec, "cmpl-0123456789abcdef")) std::abort();
    }
    step();
    if (!watched) return;
    record::RunTap::Batch batch = tap.take();
    live = std::make_unique<record::LiveRun>(std::move(*batch.start));
    live->add(view);
    live->take(batch);
  }
  static control::SchedulerConfig config_of(uint32_t num_seqs, uint32_t num_groups) {
    control::SchedulerConfig config;
    config.kv_windows.resize(num_groups, kWindow);  // the first has none
    config.num_blocks = num_groups * num_seqs * ((kPrompt + kSteps) / config.block_size + 2);
    config.max_num_seqs = num_seqs;
    config.max_num_batched_tokens = 1 << 20;
    config.max_model_len = 1 << 20;
    return config;
  }
  void step() {
    const control::StepPlan plan = scheduler.plan(0);
    control::StepResult result;
    result.seqs.resize(plan.seqs.size());
    for (size_t i = 0; i < plan.seqs.size(); ++i) {
      if (plan.seqs[i].rows == control::LogitRows::kLast) result.seqs[i].token.emplace();
    }
    benchmark::DoNotOptimize(scheduler.commit(plan, std::move(result), 1));
  }

  record::RecordedScheduler scheduler;
  record::RunTap tap;
  record::LiveView view;
  std::unique_ptr<record::LiveRun> live;
};

template <Who who>
void step_of(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  const auto num_seqs = static_cast<uint32_t>(state.range(0));
  const auto num_groups = static_cast<uint32_t>(state.range(1));
  auto run = std::make_unique<Run>(num_seqs, num_groups, who != Who::kNobody);
  uint32_t steps = 0;
  std::string text;
  for (auto _ : state) {
    if ((steps += kStepsAtATime) >= kSteps) {
      run = std::make_unique<Run>(num_seqs, num_groups, who != Who::kNobody);
      steps = kStepsAtATime;
    }
    const auto start = Clock::now();
    for (uint32_t i = 0; i < kStepsAtATime; ++i) run->step();
    const auto stepped = Clock::now();
    if (who != Who::kNobody) {
      run->live->take(run->tap.take());
      text.clear();
      run->view.take(*run->live, 0, true, text);
    }
    const auto end = Clock::now();
    const std::chrono::duration<double> took = who == Who::kFollower ? end - stepped : stepped - start;
    state.SetIterationTime(took.count() / kStepsAtATime);
  }
  if (who != Who::kNobody) state.counters["bytes"] = static_cast<double>(text.size()) / kStepsAtATime;
}

BENCHMARK(step_of<Who::kNobody>)
    ->Name("unwatched")
    ->Args({64, 1})
    ->Args({256, 1})
    ->Args({256, 3})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(step_of<Who::kTap>)
    ->Name("watched")
    ->Args({64, 1})
    ->Args({256, 1})
    ->Args({256, 3})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(step_of<Who::kFollower>)
    ->Name("follower")
    ->Args({64, 1})
    ->Args({256, 1})
    ->Args({256, 3})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
