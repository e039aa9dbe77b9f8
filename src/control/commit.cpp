#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "control/scheduler.h"

// The part of Scheduler that applies the result of a step.
namespace quire::control {

// This and the next function run once per token of every step, so they are inlined into commit().
[[gnu::always_inline]] inline void Scheduler::take_token(Sequence& seq, SampledToken&& token,
                                                         SeqEvent& event) {
  if (seq.total() == seq.prompt_length) event.cached_tokens = seq.cached_tokens.value_or(0);
  --seq.pending;
  if (seq.slot != kNoSlot) {
    seq.tokens.push_back(token.token);
  } else {
    append_awaited(seq, token.token);
  }
  const std::vector<TokenId>& stops = seq.spec.stop_tokens;
  if (!stops.empty() && std::binary_search(stops.begin(), stops.end(), token.token)) {
    event.finish = FinishReason::kStop;
    event.stop_token = token.token;
  } else if (seq.total() == seq.longest) {
    event.finish = FinishReason::kLength;
  }
  event.token.emplace(std::move(token));
}

[[gnu::always_inline]] inline void Scheduler::take_result(const SeqStep& step, SeqResult&& got,
                                                          std::vector<SeqEvent>& events) {
  Sequence* seq = by_slot_[step.slot];
  const bool wants_token = step.rows == LogitRows::kLast;
  const bool runs_on = seq != nullptr && seq->generation == step.generation;
  if (!runs_on) {  // it was preempted, and only a sampled token counts; or it has ended
    seq = wants_token ? find_awaited(step.slot, step.generation) : nullptr;
    if (seq == nullptr) return;
  }
  if (got.error.empty() && got.tokens.size() != (wants_token ? 1 : 0)) {
    got.error = fmt::format("the executor sampled {} tokens", got.tokens.size());
  }
  if (got.error.empty()) {
    if (runs_on) {
      const auto count = static_cast<uint32_t>(step.tokens.size());
      seq->computed += count;
      seq->planned -= count;
      log_.of(seq->spec.id);
      if (config_.enable_prefix_caching) publish_full_blocks(*seq, step.first_position);
      if (windowed_) seq->table.release_behind(pool_, seq->computed);
    }
    if (!wants_token) return;
  }
  SeqEvent& event = events.emplace_back(seq->spec.id);
  if (got.error.empty()) {
    take_token(*seq, std::move(got.tokens.front()), event);
  } else {
    event.finish = FinishReason::kError;
    event.error = std::move(got.error);
  }
  if (!event.finish) return;
  ++open_.front().finished;
  finish(*seq, *event.finish);
}

std::vector<SeqEvent> Scheduler::commit(const StepPlan& plan, StepResult result) {
  if (open_.empty() || open_.front().step != plan.step) {
    throw Error(fmt::format("step {}: its results come where those of {} are due", plan.step,
                            open_.empty() ? "none" : fmt::format("step {}", open_.front().step)));
  }
  if (result.seqs.size() != plan.seqs.size()) {
    throw Error(fmt::format("step {}: results for {} sequences instead of {}", plan.step, result.seqs.size(),
                            plan.seqs.size()));
  }
  std::vector<SeqEvent> events;
  events.reserve(plan.seqs.size());
  for (size_t i = 0; i < plan.seqs.size(); ++i) take_result(plan.seqs[i], std::move(result.seqs[i]), events);
  stats_ = open_.front();
  open_.pop_front();
  describe_state(stats_);
  return events;
}

/// The sequence that had the slot in this generation, if it waits for a token from then.
Sequence* Scheduler::find_awaited(SlotId slot, uint32_t generation) const {
  for (Sequence* seq : awaited_) {
    if (seq->last_slot == slot && seq->generation == generation) return seq;
  }
  return nullptr;
}

/// The token of a sequence that has been preempted since.
void Scheduler::append_awaited(Sequence& seq, TokenId token) {
  pool_.want(seq.tokens, seq.spec.salt, -1);
  seq.tokens.push_back(token);
  pool_.want(seq.tokens, seq.spec.salt, 1);
  if (seq.pending == 0) std::erase(awaited_, &seq);
}

/// Publishes the blocks that became full when the tokens from `first_position` on were computed.
void Scheduler::publish_full_blocks(Sequence& seq, uint32_t first_position) {
  const uint32_t size = config_.block_size;
  const uint64_t last_row = uint64_t{seq.table.size() - 1} * size;
  if (first_position >= last_row && seq.computed < last_row + size)
    return;  // the most frequent case, checked first
  for (uint32_t i = first_position / size; i < seq.computed / size; ++i) {
    seq.table.publish(pool_, i, std::span(seq.tokens).subspan(size_t{i} * size, size), seq.spec.salt);
  }
}

}  // namespace quire::control
