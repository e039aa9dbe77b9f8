#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "control/scheduler.h"

// The part of Scheduler that takes in what a step gave.
namespace quire {

std::vector<SeqEvent> Scheduler::commit(const StepPlan& plan, StepResult result) {
  if (result.seqs.size() != plan.seqs.size()) {
    throw Error(fmt::format("step {}: results for {} sequences instead of {}", plan.step, result.seqs.size(),
                            plan.seqs.size()));
  }
  const bool windowed = std::ranges::any_of(config_.kv_windows, [](uint32_t window) { return window > 0; });
  std::vector<SeqEvent> events;
  events.reserve(plan.seqs.size());
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    const SeqStep& step = plan.seqs[i];
    SeqResult& got = result.seqs[i];
    if (by_slot_[step.slot] == nullptr) continue;  // aborted meanwhile
    Sequence& seq = *by_slot_[step.slot];
    const bool wants_token = step.rows == LogitRows::kLast;
    if (got.error.empty() && got.tokens.size() != (wants_token ? 1 : 0)) {
      got.error = fmt::format("the executor sampled {} tokens", got.tokens.size());
    }
    if (got.error.empty()) {
      seq.computed += std::exchange(seq.planned, 0);
      log_.of(seq.spec.id);
      if (config_.enable_prefix_caching) publish_full_blocks(seq, step.first_position);
      if (windowed) seq.table.release_behind(pool_, seq.computed);
      if (!wants_token) continue;
    }
    SeqEvent& event = events.emplace_back(seq.spec.id);
    if (got.error.empty()) {
      take_token(seq, std::move(got.tokens.front()), event);
    } else {
      event.finish = FinishReason::kError;
      event.error = std::move(got.error);
    }
    if (!event.finish) continue;
    ++next_stats_.finished;
    finish(seq, *event.finish);
  }
  stats_ = next_stats_;
  describe_state(stats_);
  return events;
}

/// Publishes the blocks that became full by computing from `first_position` on.
void Scheduler::publish_full_blocks(Sequence& seq, uint32_t first_position) {
  const uint32_t size = config_.block_size;
  const uint64_t last_row = uint64_t{seq.table.size() - 1} * size;
  if (first_position >= last_row && seq.computed < last_row + size) return;  // mostly, and quicker to see
  for (uint32_t i = first_position / size; i < seq.computed / size; ++i) {
    seq.table.publish(pool_, i, std::span(seq.tokens).subspan(size_t{i} * size, size), seq.spec.salt);
  }
}

void Scheduler::take_token(Sequence& seq, SampledToken&& token, SeqEvent& event) {
  if (seq.total() == seq.prompt_length) event.cached_tokens = seq.cached_tokens.value_or(0);
  seq.tokens.push_back(token.token);
  if (std::binary_search(seq.spec.stop_tokens.begin(), seq.spec.stop_tokens.end(), token.token)) {
    event.finish = FinishReason::kStop;
    event.stop_token = token.token;
  } else if (seq.total() - seq.prompt_length == seq.spec.max_tokens) {
    event.finish = FinishReason::kLength;
  }
  event.token.emplace(std::move(token));
}

}  // namespace quire
