#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "control/scheduler.h"

// The part of Scheduler that applies the result of a step.
namespace quire::control {

/// The sequence that had the slot in this generation, if it still has it or waits for results from then.
[[gnu::noinline]] Sequence* Scheduler::find(const SeqStep& step) const {
  Sequence* seq = by_slot_[step.slot];
  if (seq != nullptr && seq->generation == step.generation) return seq;
  for (Sequence* other : awaited_) {
    if (other->last_slot == step.slot && other->generation == step.generation) return other;
  }
  return nullptr;
}

// This and the next function run once per token of every step, so they are inlined into commit().
[[gnu::always_inline]] inline void Scheduler::take_token(Sequence& seq, SampledToken&& token,
                                                         SeqEvent& event) {
  --seq.pending;
  const bool waits = seq.slot == kNoSlot;  // it has been preempted since, so its blocks are wanted
  if (waits) pool_.want(seq.tokens, seq.spec.salt, -1);
  seq.tokens.push_back(token.token);
  if (waits) pool_.want(seq.tokens, seq.spec.salt, 1);
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
  const bool runs_on = seq != nullptr && seq->generation == step.generation;
  if (!runs_on) {  // it was preempted, and its K/V is lost; or it has ended
    seq = find(step);
    if (seq == nullptr) return;
  }
  const bool samples = step.rows == LogitRows::kLast;
  if (got.error.empty() && got.token.has_value() != samples) {
    got.error = samples ? "the executor sampled no token" : "the executor sampled a token of a chunk";
  }
  if (got.error.empty()) {
    if (runs_on) {
      const auto count = static_cast<uint32_t>(step.tokens.size());
      seq->computed += count;
      seq->planned -= count;
      slots_unused_ -= count;
      log_.of(seq->spec.id);
      const uint64_t size = config_.block_size, end = size * seq->table.size();
      if (config_.enable_prefix_caching && (seq->computed == end || step.first_position + size < end))
        publish_full_blocks(*seq, step.first_position);
      if (windowed_) seq->table.release_behind(pool_, seq->computed);
    }
    if (step.rows == LogitRows::kNone) return;
  }
  SeqEvent& event = events.emplace_back(seq->spec.id);
  if (seq->total() == seq->prompt_length) event.cached_tokens = seq->cached_tokens.value_or(0);
  if (samples && got.error.empty()) {
    take_token(*seq, std::move(*got.token), event);
  } else {
    event.finish = got.error.empty() ? FinishReason::kLength : FinishReason::kError;
    event.error = std::move(got.error);
    event.refused = got.refused;
  }
  if (!event.finish) return;
  ++open_.front().finished;
  finish(*seq, *event.finish);
}

std::vector<SeqEvent> Scheduler::commit(const StepPlan& plan, StepResult result) {
  if (open_.empty() || open_.front().step != plan.step || result.seqs.size() != plan.seqs.size() ||
      result.prompts.size() != plan.prompts.size()) {
    throw Error(fmt::format("step {}: results that are not those of the oldest open plan", plan.step));
  }
  take_prompts(plan, result);
  std::vector<SeqEvent> events;
  events.reserve(plan.seqs.size());
  for (size_t i = 0; i < plan.seqs.size(); ++i) take_result(plan.seqs[i], std::move(result.seqs[i]), events);
  if (!awaited_.empty()) std::erase_if(awaited_, [](const Sequence* seq) { return !seq->awaits(); });
  stats_ = open_.front();
  open_.pop_front();
  describe_state(stats_);
  return events;
}

/// Before the tokens of the same step: a sequence that they end has its rows.
void Scheduler::take_prompts(const StepPlan& plan, StepResult& result) {
  prompts_.clear();
  for (size_t i = 0; i < plan.prompts.size(); ++i) {
    const PromptStep& part = plan.prompts[i];
    Sequence* seq = find(plan.seqs[part.seq]);
    if (seq == nullptr) continue;
    --seq->yields;
    SeqResult& whole = result.seqs[part.seq];
    PromptYield& got = result.prompts[i];
    if (whole.error.empty() && got.rows.size() != part.end_row - part.first_row) {
      whole.error = fmt::format("the executor gave {} rows of the prompt", got.rows.size());
    }
    if (!whole.error.empty()) continue;
    seq->next_row = part.last ? Sequence::kNoRow : part.end_row;
    if (!got.empty()) prompts_.push_back({seq->spec.id, std::move(got)});
  }
}

/// Publishes the blocks that became full when the tokens from `first_position` on were computed.
void Scheduler::publish_full_blocks(Sequence& seq, uint32_t first_position) {
  const uint32_t size = config_.block_size;
  for (uint32_t i = first_position / size; i < seq.computed / size; ++i) {
    seq.table.publish(pool_, i, std::span(seq.tokens).subspan(size_t{i} * size, size), seq.spec.salt);
  }
}

}  // namespace quire::control
