#include "engine/step_budget.h"

#include <algorithm>

namespace quire::engine {
namespace {

// Prompts that take less than this share of their tokens are ignored: the time of such a step may be mostly
// that of reading the weights.
constexpr double kFull = 0.75;
constexpr double kFaster = 0.25;  // the share of a speed-up that is applied after one step
// What a token of context adds to a decode, in units of what it adds to a prompt's token: the rows of a
// prompt share the reading of K and V, a decode reads them for itself (2.5 to 4 by the rows of `quire bench
// ops`).
constexpr double kDecodeReads = 3;

}  // namespace

StepBudget::StepBudget(Nanos target, const control::SchedulerConfig& config)
    : target_(static_cast<double>(target)),
      most_(std::max(1.0, static_cast<double>(config.max_num_batched_tokens) - config.max_num_seqs)),
      least_(std::min<double>(most_, config.max_num_seqs)),
      context_part_(config.context_cost * 1e-6),
      tokens_(most_) {}

void StepBudget::after(const control::StepPlan& plan, Nanos took) {
  double prompts = 0;
  double decodes = 0;
  for (const control::SeqStep& seq : plan.seqs) {
    const auto tokens = static_cast<double>(seq.tokens.size());
    const double context = context_part_ * seq.first_position;
    if (seq.tokens.size() == 1) {
      decodes += 1 + kDecodeReads * context;
    } else {
      prompts += tokens * (1 + context);
    }
  }
  if (took <= 0 || prompts < kFull * tokens_) return;
  double fits = target_ * (prompts + decodes) / static_cast<double>(took);
  // After a very long context the scheduler's least chunk costs more than its tokens. It is a share of them,
  // so with that much fewer it would have cost what it should.
  if (prompts > tokens_) fits *= tokens_ / prompts;
  tokens_ += (fits - tokens_) * (fits < tokens_ ? 1 : kFaster);
  tokens_ = std::clamp(tokens_, least_, most_);
}

}  // namespace quire::engine
