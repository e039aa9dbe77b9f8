#include <algorithm>
#include <iterator>
#include <utility>

#include "control/scheduler.h"

// The part of Scheduler that preempts: which sequence is the victim, and what happens to its K/V.
namespace quire::control {

/// Candidates are the sequences without a part in this step, the last admitted first among equals. One that
/// has nothing left to compute loses nothing and is chosen first. Otherwise a protected one is preempted only
/// for a protected one that was admitted before it. So a sequence that needs room gets it once it is alone,
/// and a step that preempts also computes.
Sequence* Scheduler::choose_victim(const Sequence& needy) const {
  Sequence* victim = nullptr;
  for (size_t i = running_.size(); i-- > 0;) {
    Sequence& seq = *running_[i];
    if (seq.last_step == next_stats_.step) continue;
    if (seq.remaining() == 0) return &seq;
    if (seq.is_protected() && !(needy.is_protected() && needy.first_admitted < seq.first_admitted)) continue;
    const int64_t sign = config_.victim == VictimKind::kLowestPriority ? -1 : 1;  // the highest number
    if (victim == nullptr || sign * worth(seq).value < sign * worth(*victim).value) victim = &seq;
  }
  return victim;
}

Standing Scheduler::worth(const Sequence& victim) const {
  if (victim.remaining() == 0) return {Ground::kNothingLeft};
  if (config_.victim == VictimKind::kLowestPriority) return {Ground::kLowest, victim.spec.priority};
  if (config_.victim == VictimKind::kLeastProgress) return {Ground::kLeastDone, victim.next()};
  return {Ground::kLastAdmitted};
}

void Scheduler::preempt(StepPlan& plan, Sequence& seq) {
  ++seq.preemptions;
  log_.of(seq.spec.id);
  log_.write(DecisionKind::kPreempt, seq.next(), seq.preemptions);
  const bool moves = config_.preemption != PreemptionKind::kRecompute && !seq.adds_up();
  if (moves && seq.remaining() > 0) swap_out(plan, seq);
  running_.erase(std::find(running_.begin(), running_.end(), &seq));
  release(seq);
  if (seq.awaits()) awaited_.push_back(&seq);
  const auto later = std::ranges::upper_bound(waiting_, seq.arrival, {}, &Sequence::arrival);
  waiting_.insert(later, &seq);
  noted_ = {};
  policy_->queued(seq);
  pool_.want(seq.tokens, seq.spec.salt, 1);
  preempted_.push_back(seq.spec.id);
  ++next_stats_.preempted;
  ++next_stats_.total_preemptions;
}

/// Copies all its K/V to the host, including shared blocks, which other sequences may have released by the
/// time it returns.
void Scheduler::swap_out(StepPlan& plan, Sequence& seq) {
  seq.table.release_behind(pool_, seq.next());
  uint64_t blocks = 0;
  for (uint32_t group = 0; group < seq.table.num_groups(); ++group) {
    blocks += std::ranges::count_if(seq.table.blocks(group), [](BlockId block) { return block != kNoBlock; });
  }
  const CostHints& costs = config_.costs;
  const bool quicker = 2 * static_cast<Nanos>(blocks) * costs.swap_block < seq.next() * costs.prefill_token;
  if (blocks > free_host_blocks_.size() || (config_.preemption == PreemptionKind::kAuto && !quicker)) {
    const auto free = static_cast<uint32_t>(free_host_blocks_.size());
    log_.because({CauseKind::kNotMoved, {}, seq.spec.id, kNoSeq, static_cast<uint32_t>(blocks), free});
    return;
  }
  std::vector<BlockId>& host = seq.host.write();
  for (uint32_t group = 0; group < seq.table.num_groups(); ++group) {
    for (const BlockId block : seq.table.blocks(group)) {
      host.push_back(block == kNoBlock ? kNoBlock : free_host_blocks_.back());
      if (block == kNoBlock) continue;
      free_host_blocks_.pop_back();
      plan.moves_out.push_back({block, host.back()});
    }
  }
  seq.swapped = seq.next();
  log_.write(DecisionKind::kSwapOut, static_cast<uint32_t>(blocks));
}

void Scheduler::swap_in(StepPlan& plan, Sequence& seq) {
  const uint32_t groups = seq.table.num_groups();
  const auto rows = static_cast<uint32_t>(seq.host.size() / groups);
  const size_t moved = plan.moves_in.size();
  std::vector<BlockId> wanted(groups);
  seq.table.release_behind(pool_, seq.swapped);  // the prefix is shorter, so its windows end earlier too
  for (uint32_t row = seq.table.size(); row < rows; ++row) {
    for (uint32_t group = 0; group < groups; ++group) wanted[group] = seq.host[size_t{group} * rows + row];
    seq.table.append(pool_, wanted);
    for (uint32_t group = 0; group < groups; ++group) {
      if (wanted[group] != kNoBlock) plan.moves_in.push_back({seq.table.blocks(group)[row], wanted[group]});
    }
  }
  const uint32_t computed = std::exchange(seq.computed, seq.swapped);
  if (config_.enable_prefix_caching) publish_full_blocks(seq, computed);
  seq.table.take_changed();
  log_.write(DecisionKind::kSwapIn, static_cast<uint32_t>(plan.moves_in.size() - moved));
}

void Scheduler::free_host_blocks(Sequence& seq) {
  std::ranges::remove_copy(seq.host, std::back_inserter(free_host_blocks_), kNoBlock);
  seq.host = {};
  seq.swapped = 0;
}

}  // namespace quire::control
