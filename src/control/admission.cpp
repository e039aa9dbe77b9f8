#include <algorithm>
#include <utility>

#include "control/kv/windows.h"
#include "control/scheduler.h"

// The part of Scheduler that admits waiting sequences: which is next, what it finds cached, whether it fits.
namespace quire::control {

/// In the order of the policy. Passed over are forks that wait for their parent and followers: sequences that
/// wait for another to compute their next block. A slot stays free for each follower, so that few sequences
/// overtake it. A sequence is admitted if the blocks for all its tokens and the watermark are available, or
/// if it is alone.
void Scheduler::plan_admissions(StepPlan& plan, uint32_t& budget) {
  followers_ = 0;
  while (!waiting_.empty()) {
    if (free_slots_.empty()) return note_waiting(WaitReason::kSlots, nullptr, 0);
    if (budget == 0) return note_waiting(WaitReason::kBudget, nullptr, 0);
    Sequence* seq = free_slots_.size() > followers_ ? next_waiting() : nullptr;
    if (seq == nullptr) return note_waiting(WaitReason::kSlots, nullptr, 0);
    const uint32_t cached_tokens = find_prefix(*seq, fork_parent(*seq));
    if (const Sequence* other = find_leader(*seq, cached_tokens)) {
      log_.because({.kind = CauseKind::kFollows, .seq = seq->spec.id, .other = other->spec.id});
      seq->follows_in = plan.step;
      ++followers_;
      continue;
    }
    if (log_.wants_causes()) tell_order(*seq);
    if (seq->awaits()) return note_waiting(WaitReason::kToken, nullptr, 0);
    const uint64_t needed = blocks_to_admit(*seq, cached_tokens);
    if (!running_.empty() && needed + watermark_ > pool_.available()) {
      const auto lacks = static_cast<uint32_t>(needed);
      log_.because({CauseKind::kShort, {}, seq->spec.id, kNoSeq, lacks, pool_.available(), watermark_});
      return note_waiting(WaitReason::kBlocks, seq, needed);
    }
    const auto place = std::ranges::find(waiting_, seq);
    for (auto other = waiting_.begin(); other != place; ++other) ++(*other)->passed;
    waiting_.erase(place);
    admit(plan, *seq, cached_tokens);
    plan_chunk(plan, *seq, budget);  // at least 1 token: alone it fits
  }
}

Sequence* Scheduler::next_waiting() {
  Sequence* best = nullptr;
  size_t compared = 0;
  for (Sequence* seq : waiting_) {
    if (compared == policy_->horizon()) break;
    if (passed_over(*seq) != WaitReason::kNone) continue;
    ++compared;
    seq->rank = seq->is_protected() ? INT64_MIN : policy_->rank(*seq);
    if (best == nullptr || seq->rank < best->rank) best = seq;
  }
  return best;
}

Standing Scheduler::standing_of(const Sequence& seq) const {
  // A policy that does not compare passes over protected sequences too.
  if (seq.is_protected() && policy_->horizon() > 1) return {Ground::kProtected};
  return policy_->standing(seq, seq.rank);
}

void Scheduler::tell_order(const Sequence& first) {
  const Standing best = standing_of(first);
  if (std::exchange(told_first_, first.spec.id) != first.spec.id) {
    log_.because(
        {.kind = CauseKind::kFirst, .ground = best.ground, .seq = first.spec.id, .value = best.value});
  }
  size_t compared = 0;
  for (Sequence* seq : waiting_) {
    if (compared == policy_->horizon()) break;
    if (passed_over(*seq) != WaitReason::kNone) continue;
    ++compared;
    if (seq == &first) continue;
    const Standing own = standing_of(*seq);
    const bool same = own.ground == best.ground;
    const uint32_t order = !same || own.value == best.value ? 0 : own.value < best.value ? 1 : 2;
    const uint32_t relation =
        1 + order + 4 * static_cast<uint32_t>(own.ground) + 64 * static_cast<uint32_t>(best.ground);
    if (std::exchange(seq->told_behind, relation) == relation) continue;
    log_.because({.kind = CauseKind::kBehind, .ground = own.ground, .seq = seq->spec.id, .value = own.value});
  }
}

/// All waiting sequences wait for `reason`; or only `first` does, which needs `needed` blocks, and the others
/// wait for it. If that was so before and none is passed over, only what was added since is looked at.
void Scheduler::note_waiting(WaitReason reason, const Sequence* first, uint64_t needed) {
  const auto is_noted = [](const Sequence* seq) { return seq->waits_for != WaitReason::kNone; };
  const std::pair all{reason, first == nullptr ? kNoSeq : first->spec.id};
  const bool same = std::exchange(noted_, all) == all && followers_ == 0;
  auto at = same ? std::find_if(waiting_.rbegin(), waiting_.rend(), is_noted).base() : waiting_.begin();
  for (; at != waiting_.end(); ++at) {
    Sequence* seq = *at;
    const WaitReason usual = first == nullptr || seq == first ? reason : WaitReason::kOrder;
    const WaitReason over = passed_over(*seq);
    if (over != WaitReason::kNone) noted_ = {};
    const WaitReason own = over != WaitReason::kNone ? over : usual;
    if (std::exchange(seq->waits_for, own) == own) continue;
    log_.of(seq->spec.id);
    log_.write(DecisionKind::kSkip, static_cast<uint32_t>(own),
               seq == first ? static_cast<uint32_t>(needed) : 0);
  }
}

/// The prompt but for its last token, if the parent still holds what that reads; else what the index finds.
uint32_t Scheduler::find_prefix(const Sequence& seq, const Sequence* parent) {
  const uint32_t last = seq.prompt_length - 1;
  const uint32_t most = seq.sharable();
  if (parent != nullptr && most >= last && parent->table.prefix(pool_, last, prefix_)) return last;
  prefix_ = {};
  if (config_.enable_prefix_caching) {
    pool_.cache().match(std::span(seq.tokens).first(most + 1), seq.spec.salt, prefix_);
  }
  return prefix_.num_rows * config_.block_size;
}

/// The running sequence that computes the block after the `cached_tokens` of `seq`, which `seq` will then
/// find in the prefix index instead of computing it too; nullptr if there is none.
const Sequence* Scheduler::find_leader(const Sequence& seq, uint32_t cached_tokens) const {
  const uint32_t end = cached_tokens + config_.block_size;
  if (!config_.enable_prefix_caching || end > seq.sharable() || seq.swapped > cached_tokens) return nullptr;
  for (const Sequence* other : running_) {
    const bool computes_it = other->computed < end && other->next() > cached_tokens && other->total() >= end;
    if (computes_it && other->spec.salt == seq.spec.salt &&
        std::equal(seq.tokens.begin(), seq.tokens.begin() + end, other->tokens.begin())) {
      return other;
    }
  }
  return nullptr;
}

uint64_t Scheduler::blocks_to_admit(const Sequence& seq, uint32_t cached_tokens) const {
  const uint32_t size = config_.block_size;
  // A partly filled block of the parent is copied.
  const uint64_t first_new = uint64_t{cached_tokens / size} * size;
  const uint64_t end = config_.admit_eagerly && seq.swapped == 0 ? cached_tokens + 1 : seq.total();
  const uint64_t chunk = std::min<uint64_t>(config_.max_num_batched_tokens, end - cached_tokens);
  uint64_t needed = blocks_held(config_.kv_windows, end - first_new, chunk, size);
  // A cached block of the hit counts as available, but no longer once this sequence holds it.
  for (const BlockId block : prefix_.blocks) {
    needed += block != kNoBlock && pool_.references(block) == 0 ? 1 : 0;
  }
  return needed;
}

void Scheduler::admit(StepPlan& plan, Sequence& seq, uint32_t cached_tokens) {
  policy_->dequeued(seq);
  pool_.want(seq.tokens, seq.spec.salt, -1);
  seq.waits_for = WaitReason::kNone;
  seq.told_behind = 0;
  told_first_ = kNoSeq;
  if (!seq.first_admitted) seq.first_admitted = first_admissions_++;
  seq.slot = free_slots_.back();
  free_slots_.pop_back();
  by_slot_[seq.slot] = &seq;
  seq.generation = ++generations_[seq.slot];
  running_.push_back(&seq);
  log_.of(seq.spec.id);
  if (cached_tokens > 0) log_.write(DecisionKind::kHit, cached_tokens, seq.total());
  seq.table.share(pool_, prefix_);
  seq.computed = cached_tokens;
  if (seq.swapped > cached_tokens) swap_in(plan, seq);
  free_host_blocks(seq);
  slots_unused_ += uint64_t{seq.table.size()} * config_.block_size - seq.computed;
  log_.write(DecisionKind::kAdmit, seq.slot, seq.computed);

  const PromptWants wants = seq.next_row == Sequence::kNoRow ? PromptWants{} : seq.spec.wants;
  NewSeq& added =
      plan.added.emplace_back(seq.slot, seq.generation, seq.spec.sampling, wants, seq.prompt_length);
  for (uint32_t group = 0; group < seq.table.num_groups(); ++group) {
    const auto blocks = seq.table.blocks(group);
    added.blocks.insert(added.blocks.end(), blocks.begin(), blocks.end());
  }
  if (seq.spec.sampling.needs_history()) added.history.assign(seq.tokens.begin(), seq.tokens.end());

  admitted_.push_back(seq.spec.id);
  ++next_stats_.admitted;
  if (seq.cached_tokens) return;  // readmitted: hits on its own blocks would inflate the hit rate
  seq.cached_tokens = cached_tokens;
  if (config_.enable_prefix_caching && !seq.spec.fork_of) {
    next_stats_.total_prefix_queried_tokens += seq.prompt_length;
    next_stats_.total_prefix_hit_tokens += cached_tokens;
  }
}

const Sequence* Scheduler::fork_parent(const Sequence& seq) const {
  // A fork that has tokens of its own shares only what the prefix index knows.
  if (!seq.spec.fork_of || seq.total() > seq.prompt_length) return nullptr;
  const auto parent = sequences_.find(*seq.spec.fork_of);
  const bool found = parent != sequences_.end() && parent->second->arrival < seq.arrival;
  return found ? parent->second.get() : nullptr;
}

WaitReason Scheduler::passed_over(const Sequence& seq) const {
  const Sequence* parent = fork_parent(seq);
  if (parent != nullptr && (!parent->prompt_computed() || parent->computed + 1 < seq.prompt_length))
    return WaitReason::kParent;
  return seq.follows_in == next_stats_.step ? WaitReason::kPrefix : WaitReason::kNone;
}

}  // namespace quire::control
