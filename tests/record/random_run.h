#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backend/executor.h"
#include "base/rng.h"
#include "control/scheduler.h"
#include "record/prefix_snapshot.h"
#include "record/run_record.h"

namespace quire::test {

/// A random run of a small pool under random policies, with aborts, failures, forks and resets, as it was
/// written down. Up to three steps are open at once, as the seed says.
struct RandomRun {
  control::SchedulerConfig config;
  uint64_t digest = 0;
  uint64_t steps = 0;
  uint64_t commits = 0;                    // steps that were not empty
  uint64_t prompt_steps = 0;               // chunks of prompts that lacked something
  control::StepStats stats;                // at the end
  size_t depth = 1;                        // so many steps may be open
  std::vector<control::StepPlan> plans;    // by step; one may be empty while others are open
  std::vector<control::StepStats> states;  // by step, when its results were in and before anything else
};

/// A new policy changes what every seed draws: a test that needs a property of one run sets its config
/// itself.
inline control::SchedulerConfig random_config(SplitMix64& random) {
  control::SchedulerConfig config;
  config.num_blocks = static_cast<uint32_t>(10 + random.below(12));
  config.block_size = 4;
  config.max_num_seqs = static_cast<uint32_t>(3 + random.below(6));
  config.max_num_batched_tokens = config.max_num_seqs + static_cast<uint32_t>(random.below(30));
  config.max_model_len = 60;
  config.watermark_bp = 0;
  if (random.below(3) == 0) config.kv_windows = {0, 8};
  config.scheduling =
      control::SchedulingKind{static_cast<uint8_t>(random.below(std::size(control::kSchedulingNames)))};
  config.victim = control::VictimKind{static_cast<uint8_t>(random.below(std::size(control::kVictimNames)))};
  config.preemption =
      control::PreemptionKind{static_cast<uint8_t>(random.below(std::size(control::kPreemptionNames)))};
  config.eviction =
      control::EvictionKind{static_cast<uint8_t>(random.below(std::size(control::kEvictionNames)))};
  config.batching = control::BatchingKind{static_cast<uint8_t>(random.below(2))};
  config.num_host_blocks = static_cast<uint32_t>(random.below(20));
  return config;
}

inline control::SeqSpec random_sequence(SplitMix64& random, SeqId id) {
  control::SeqSpec spec;
  spec.id = id;
  spec.prompt = std::vector<TokenId>(1 + random.below(25));
  for (TokenId& token : spec.prompt.write()) token = static_cast<TokenId>(random.below(3) * 40'000);
  spec.max_tokens = static_cast<uint32_t>(1 + random.below(25));
  spec.stop_tokens = {7};
  spec.salt = random.below(2) * 0x123456789abcdefU;
  spec.arrived = static_cast<Nanos>(id) * 1'000'000;
  spec.priority = static_cast<int32_t>(random.below(5)) - 2;
  spec.tenant = random.below(3);
  if (random.below(2) == 0) spec.expected_tokens = static_cast<uint32_t>(random.below(20));
  SplitMix64 wants(id);
  if (wants.below(3) != 0) return spec;
  spec.wants.logprobs = static_cast<int32_t>(wants.below(3)) - 1;
  spec.wants.first_row = static_cast<uint32_t>(wants.below(10));
  spec.wants.pooling = Pooling{static_cast<uint8_t>(wants.below(3))};
  if (wants.below(3) == 0) spec.max_tokens = 0;
  return spec;
}

/// At most so many steps.
inline RandomRun record_random_run(const std::filesystem::path& path, uint64_t seed,
                                   uint64_t most = UINT64_MAX) {
  SplitMix64 random(seed);
  RandomRun run;
  run.config = random_config(random);
  control::Scheduler scheduler(run.config);
  record::RunWriter writer(path);
  writer.begin(run.config);
  scheduler.listen(&writer, &writer);
  if (random.below(2) == 0) {  // a warm start
    std::vector<record::PrefixNode> nodes(1 + random.below(20));
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      if (random.below(4) != 0 && i > 0) nodes[i].parent = static_cast<uint32_t>(random.below(i));
      for (int k = 0; k < 4; ++k) nodes[i].tokens.push_back(static_cast<TokenId>(random.below(3) * 40'000));
      for (size_t group = 0; group < run.config.kv_windows.size(); ++group) {
        nodes[i].blocks.push_back(random.below(5) == 0 ? kNoBlock : 0);
      }
    }
    writer.restore(nodes);
    record::restore(scheduler.pool(), nodes);
    EXPECT_EQ(scheduler.check_invariants(), "");
  }
  SeqId next = 0;
  run.depth = 1 + seed % backend::kMostOpenSteps;
  std::deque<std::pair<size_t, control::StepResult>> open;  // by number in run.plans
  const auto commit_oldest = [&](Nanos now) {
    auto [number, result] = std::move(open.front());
    open.pop_front();
    writer.commit(run.plans[number].step, result, now);
    scheduler.commit(run.plans[number], std::move(result));
    run.states.resize(number + 1);
    run.states[number] = scheduler.stats();
    ++run.commits;
  };
  for (int i = 0; i < 250 && run.plans.size() < most; ++i) {
    if (random.below(2) == 0) {
      control::SeqSpec spec = random_sequence(random, next);
      writer.add(spec, "seq-" + std::to_string(next));
      ++next;
      const auto told = scheduler.add(spec);
      if (!told) writer.refused(told.error());
      const bool added = told.has_value();
      if (added && random.below(4) == 0) {
        spec.fork_of = spec.id;
        spec.id = next++;
        writer.add(spec, "seq-" + std::to_string(spec.id));
        if (const auto forked = scheduler.add(spec); !forked) writer.refused(forked.error());
      }
    }
    if (next > 0 && random.below(20) == 0) {
      const SeqId id = random.below(next);
      writer.abort(id, random.below(2) == 0);
      scheduler.abort(id);
    }
    if (random.below(100) == 0) {
      writer.reset();
      scheduler.pool().drop_cached();
    }
    if (random.below(10) == 0) {
      const auto budget = static_cast<uint32_t>(random.below(40));
      writer.set_budget(budget);
      scheduler.set_budget(budget);
    }
    const Nanos now = Nanos{i} * 1'000'000;
    if (i % 50 == 49) writer.flush();  // a block each
    if (open.size() == run.depth || (!scheduler.has_work() && !open.empty())) commit_oldest(now - 300'000);
    if (!scheduler.has_work()) continue;
    writer.plan(scheduler.next_step(), now);
    run.plans.push_back(scheduler.plan());
    const control::StepPlan& plan = run.plans.back();
    if (plan.empty()) {
      commit_oldest(now + 700'000);
      continue;
    }
    control::StepResult result;
    for (const control::SeqStep& step : plan.seqs) {
      control::SeqResult& seq = result.seqs.emplace_back();
      if (random.below(60) == 0) seq.error = "failed";
      if (step.rows == control::LogitRows::kLast)
        seq.token.emplace().token = static_cast<TokenId>(random.below(9));
    }
    for (const control::PromptStep& part : plan.prompts) {
      result.prompts.emplace_back().rows.resize(part.end_row - part.first_row);
      ++run.prompt_steps;
    }
    open.emplace_back(run.plans.size() - 1, std::move(result));
    if (run.depth == 1) commit_oldest(now + 700'000);
  }
  while (!open.empty()) commit_oldest(300'000'000);
  writer.end(scheduler.digest());
  writer.flush();
  run.digest = scheduler.digest();
  run.steps = run.plans.size();
  run.states.resize(run.steps);
  run.stats = scheduler.stats();
  return run;
}

}  // namespace quire::test
