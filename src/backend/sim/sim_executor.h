#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/executor.h"
#include "backend/open_results.h"
#include "backend/sim/cost_model.h"
#include "backend/sim/kv_check.h"
#include "backend/slot_table.h"
#include "control/scheduler.h"

namespace quire::backend::sim {

/// The position at which a simulated sequence generates a token.
struct SimPosition {
  uint64_t step = 0;  // StepPlan::step
  SlotId slot = kNoSlot;
  const SamplingParams& sampling;
  uint32_t prompt_length = 0;
  uint32_t position = 0;  // of the token, counted from the start of the prompt
};

struct SimTokens {
  uint32_t vocab_size = 32000;
  uint64_t seed = 0;
  /// The tokens that may be generated, each in [0, vocab_size); empty: the whole vocabulary.
  std::vector<TokenId> sayable;
  /// If set, the times deviate as those that the cost model was fitted to, drawn with this seed.
  std::optional<uint64_t> jitter;
  /// Whether each step is checked to find its sequences' K/V where their block tables say (KvCheck). Then
  /// every sequence that begins with blocks of others must bring its history.
  bool check_kv = false;
  /// If set, gives the tokens instead: from a list, a trace, or a recording.
  std::function<TokenId(const SimPosition&)> next;
};

/// An executor without a model. It computes nothing: a step takes the time that the cost model says (reported
/// in StepResult::times.compute, without sleeping), and a token is a function of SimTokens::seed, the
/// sequence's sampling seed, its choice and the position. So a sequence generates the same tokens whatever
/// runs beside it, and after a preemption. Of the sampling parameters it uses only these and num_logprobs:
/// the token has rank 1 and logprob -0.5, and the alternatives listed are the next ones in the vocabulary,
/// each 1 lower. Of a late row it says the first token from there on that the mask allows, one that is not
/// sayable only if it must; a mask does not change what SimTokens::next gives. Of a prompt it gives rows with
/// the same figures, and as a pooled state one number: the prompt's last token, or the mean of its tokens.
///
/// A plan that contradicts itself or the former ones (slots, lengths of tables, numbers of blocks, positions,
/// tokens) throws Error. With SimTokens::check_kv, one that leaves K/V in the wrong blocks does too.
/// Synchronous; allocates only the StepResult, and what a check needs.
class SimExecutor final : public Executor {
 public:
  /// Blocks, groups and slots are those of `scheduler`. Throws Error if `cost` or `tokens` is invalid.
  SimExecutor(const control::SchedulerConfig& scheduler, const CostModel& cost, SimTokens tokens,
              uint32_t depth = 1);

  uint32_t depth() const override { return depth_; }
  Ticket submit(const control::StepPlan& plan) override;
  void provide(Ticket ticket, TokenMasks& masks) override;
  control::StepResult wait(Ticket ticket) override;

  const CostModel& cost() const { return cost_; }
  /// Steps beyond what the cost model was fitted to.
  uint64_t extrapolated() const { return extrapolated_; }
  uint32_t slots_in_use() const { return slots_.slots_in_use(); }

 private:
  /// What each of its tokens needs; the rest of its sampling is looked at where it asks for something.
  struct Speaker {
    uint64_t key = 0;  // of the tokens it generates
    bool masked = false;
    bool logprobs = false;
  };

  /// A late row of the newest plan.
  struct LateRow {
    uint32_t seq = 0;  // index in StepPlan::seqs
    SlotId slot = kNoSlot;
  };

  TokenId sayable(size_t index) const;
  uint32_t draw(const Speaker& speaker, SlotId slot) const;
  TokenId dictated(uint64_t step, SlotId slot) const;
  void say(SlotId slot, uint32_t drawn, SampledToken& said) {
    slots_.sampled(slot, said.token);
    if (speakers_[slot].logprobs) add_logprobs(sampling_[slot], drawn, said);
  }
  void add_logprobs(const SamplingParams& sampling, uint32_t drawn, SampledToken& said) const;
  std::optional<TokenId> allowed_from(uint32_t drawn, std::span<const uint32_t> mask) const;
  PromptYield recite(const control::SeqStep& seq, const control::PromptStep& part);
  void list_others(uint32_t drawn, int32_t count, SampledToken& said) const;

  const uint32_t depth_;
  CostModel cost_;
  SimTokens tokens_;
  size_t num_sayable_;
  SlotTable slots_;
  // By slot.
  std::vector<Speaker> speakers_;
  std::vector<SamplingParams> sampling_;
  std::vector<uint64_t> sums_;  // of the prompt's tokens, if their mean is wanted
  std::vector<LateRow> late_rows_;
  std::vector<uint32_t> mask_;
  std::vector<AttentionWork> attention_;  // of the newest plan, if the cost model asks for it
  OpenResults open_;
  std::optional<KvCheck> check_;
  uint64_t extrapolated_ = 0;
};

}  // namespace quire::backend::sim
