#include "engine/step_budget.h"

#include <algorithm>

namespace quire::engine {
namespace {

// A step below this share of the budget is ignored: its time may be mostly that of reading the weights.
constexpr double kFull = 0.75;
constexpr double kFaster = 0.25;  // the share of a speed-up that is applied after one step

}  // namespace

StepBudget::StepBudget(Nanos target, const control::SchedulerConfig& config)
    : target_(target),
      least_(config.max_num_seqs),
      most_(config.max_num_batched_tokens),
      context_part_(config.context_cost * 1e-6),
      budget_(most_) {}

double StepBudget::cost(const control::StepPlan& plan) const {
  double sum = 0;
  for (const control::SeqStep& seq : plan.seqs) {
    const auto tokens = static_cast<double>(seq.tokens.size());
    sum += seq.tokens.size() == 1 ? 1 : tokens * (1 + context_part_ * seq.first_position);
  }
  return sum;
}

uint32_t StepBudget::after(const control::StepPlan& plan, Nanos took) {
  const double spent = cost(plan);
  if (took > 0 && spent >= kFull * budget_) {
    const double fits = spent * static_cast<double>(target_) / static_cast<double>(took);
    budget_ += (fits - budget_) * (fits < budget_ ? 1 : kFaster);
    budget_ = std::clamp<double>(budget_, least_, most_);
  }
  return static_cast<uint32_t>(budget_);
}

}  // namespace quire::engine
