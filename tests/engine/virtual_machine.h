#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "control/scheduler.h"
#include "engine/step_budget.h"
#include "engine/step_costs.h"

namespace quire::test {

/// Costs in which every kind of work shows.
inline engine::StepCosts some_costs() {
  return [](const backend::StepWork& work) {
    const auto times = [](double cost, uint64_t count) { return cost * static_cast<double>(count); };
    return engine::StepCost{4e6 + (work.decoding > 0 ? 1e6 : 0) + times(1e5, work.decoding) +
                                times(300, work.decode_context) + times(3e5, work.chunks) +
                                times(8e4, work.prefill_tokens) + times(40, work.chunk_squares) +
                                times(90, work.chunk_prefix) + times(2e5, work.moved_blocks),
                            1e5 + times(7e4, work.logit_rows)};
  };
}

/// A scheduler on a device whose steps take as long as a model says, by a clock of its own.
struct VirtualMachine {
  VirtualMachine(const control::SchedulerConfig& config, engine::StepCosts the_costs)
      : scheduler(config), costs(std::move(the_costs)) {}

  static control::SchedulerConfig config(uint32_t blocks = 512) {
    control::SchedulerConfig config;
    config.num_blocks = blocks;
    config.max_num_seqs = 8;
    config.max_num_batched_tokens = 64;
    config.max_model_len = 2048;
    return config;
  }

  /// A prompt whose tokens are its own.
  control::SeqSpec spec(uint32_t prompt, uint32_t answer) {
    control::SeqSpec out;
    out.id = next++;
    for (uint32_t i = 0; i < prompt; ++i) out.prompt.push_back(static_cast<TokenId>(out.id * 10'000 + i));
    out.max_tokens = answer;
    out.arrived = now;
    return out;
  }

  /// What a forecast knows of later steps.
  engine::StepTokens tokens() const {
    if (budget) return {budget->prompt_tokens(), true};
    return {scheduler.config().max_num_batched_tokens};
  }

  void step() {
    if (budget) scheduler.set_budget(budget->prompt_tokens() + scheduler.stats().running);
    const control::StepPlan plan = scheduler.plan();
    const engine::StepCost took = costs(backend::work_of(plan));
    if (budget) budget->after(plan, static_cast<Nanos>(took.device));
    now += static_cast<Nanos>(took.whole());
    control::StepResult result;
    for (const control::SeqStep& seq : plan.seqs) {
      control::SeqResult& of = result.seqs.emplace_back();
      if (seq.rows == control::LogitRows::kLast) of.token = SampledToken{.token = 7};
    }
    result.prompts.resize(plan.prompts.size());
    for (const control::SeqEvent& event : scheduler.commit(plan, std::move(result))) {
      first_token.emplace(event.id, now);
      if (event.finish) end.emplace(event.id, now);
    }
  }
  void run() {
    while (scheduler.has_work()) step();
  }

  control::Scheduler scheduler;
  engine::StepCosts costs;
  std::optional<engine::StepBudget> budget;  // else it is fixed
  Nanos now = 0;
  SeqId next = 1;
  std::map<SeqId, Nanos> first_token;
  std::map<SeqId, Nanos> end;
};

}  // namespace quire::test
