#include "record/queue_order.h"

#include <algorithm>
#include <utility>

#include "control/sequence.h"

namespace quire {
namespace {

constexpr uint32_t kMostPassed = 32;  // make_policy: lpm

bool waits(const Sequence& seq) { return seq.slot == kNoSlot; }

}  // namespace

QueueOrder::QueueOrder(const SchedulerConfig& config)
    : config_(config), cache_(1, 1, make_eviction(EvictionKind::kLru, 1)) {
  if (config.scheduling != SchedulingKind::kFcfs && config.scheduling != SchedulingKind::kLpm) {
    policy_ = make_policy(config.scheduling, {config_.costs, config_.priority_aging, cache_});
  }
}

void QueueOrder::take(const RunEvent& event, const RunState& state) {
  if (const auto* decision = std::get_if<Decision>(&event)) return take(*decision);
  added_.reset();
  if (const auto* add = std::get_if<RunAdd>(&event)) {
    prompt_ = static_cast<uint32_t>(add->spec.prompt.size());
    added_ = add->spec;
    added_->prompt.clear();
    return;
  }
  const auto* commit = std::get_if<RunCommit>(&event);
  if (commit == nullptr) return;
  const std::vector<PlannedPart>& parts = state.due();
  for (size_t i = 0; i < std::min(commit->results.size(), parts.size()); ++i) {
    const auto found = sequences_.find(parts[i].id);
    if (found == sequences_.end() || commit->results[i].failed) continue;
    Sequence& seq = found->second;
    if (state.runs_on(parts[i])) {
      seq.computed += parts[i].tokens;
      seq.planned -= std::min(seq.planned, parts[i].tokens);
    }
    if (!commit->results[i].token) continue;
    seq.tokens.push_back(0);
    if (seq.pending > 0) --seq.pending;
  }
}

void QueueOrder::admit(Sequence& seq, uint32_t computed) {
  if (!waits(seq)) return;
  if (config_.scheduling == SchedulingKind::kLpm) {
    for (auto& [id, other] : sequences_) {
      if (waits(other) && other.arrival < seq.arrival) ++other.passed;
    }
  }
  if (policy_) policy_->dequeued(seq);
  seq.slot = 0;
  seq.swapped = 0;
  seq.computed = std::min(computed, seq.total());
  if (!seq.cached_tokens) seq.cached_tokens = seq.computed;
}

void QueueOrder::finish(Sequence& seq) {
  if (!policy_) return;
  if (waits(seq)) policy_->dequeued(seq);
  policy_->ended(seq);
}

void QueueOrder::take(const Decision& decision) {
  if (decision.kind == DecisionKind::kAdd && added_ && added_->id == decision.seq) {
    const auto [place, is_new] = sequences_.try_emplace(decision.seq);
    if (!is_new) return;
    Sequence& seq = place->second;
    seq.spec = *std::exchange(added_, std::nullopt);
    seq.tokens.resize(prompt_);  // that there are so many is all that is asked of them
    seq.prompt_length = prompt_;
    seq.longest = prompt_ + seq.spec.max_tokens;
    seq.arrival = arrivals_++;
    if (policy_) policy_->queued(seq);
    return;
  }
  const auto found = sequences_.find(decision.seq);
  if (found == sequences_.end()) return;
  Sequence& seq = found->second;
  switch (decision.kind) {
    case DecisionKind::kAdmit:
      admit(seq, decision.b);
      break;
    case DecisionKind::kChunk:
      if (waits(seq)) break;
      if (policy_) policy_->computes(seq, decision.b);
      if (decision.b >= seq.remaining()) ++seq.pending;
      seq.planned += decision.b;
      break;
    case DecisionKind::kPreempt:
      if (waits(seq)) break;
      ++seq.preemptions;
      seq.slot = kNoSlot;
      given_up_ = seq.next();
      seq.computed = seq.planned = 0;
      if (policy_) policy_->queued(seq);
      break;
    case DecisionKind::kSwapOut:
      seq.swapped = given_up_;
      break;
    case DecisionKind::kFinish:
      finish(seq);
      sequences_.erase(found);
      break;
    default:
      break;
  }
}

Precedence QueueOrder::compare(SeqId first_id, SeqId own_id) const {
  using Kind = Precedence::Kind;
  if (config_.scheduling == SchedulingKind::kFcfs) return {Kind::kEarlier};
  const auto first_found = sequences_.find(first_id);
  const auto own_found = sequences_.find(own_id);
  if (first_found == sequences_.end() || own_found == sequences_.end()) return {};
  const Sequence& first = first_found->second;
  const Sequence& own = own_found->second;
  if (!waits(first) || !waits(own)) return {};
  if (first.is_protected()) return {own.is_protected() ? Kind::kBothProtected : Kind::kProtected};
  if (config_.scheduling == SchedulingKind::kLpm) {
    if (first.passed >= kMostPassed) return {Kind::kPassed};
    return {first.arrival < own.arrival ? Kind::kEqual : Kind::kAhead};
  }
  const int64_t first_rank = policy_->rank(first);
  const int64_t own_rank = policy_->rank(own);
  const Kind by_rank = first_rank < own_rank ? Kind::kAhead : Kind::kEqual;
  switch (config_.scheduling) {
    case SchedulingKind::kSlo:
      if (first.generated() > 0) return {own.generated() > 0 ? Kind::kBothStarted : Kind::kStarted};
      return {by_rank};
    case SchedulingKind::kPriority: {
      const int64_t difference = int64_t{first.spec.priority} - own.spec.priority;
      const Kind kind = difference < 0 ? Kind::kAhead : difference == 0 ? Kind::kSamePriority : Kind::kAged;
      return {kind, first.spec.priority, own.spec.priority};
    }
    case SchedulingKind::kFair:
      return {first.spec.tenant == own.spec.tenant ? Kind::kSameTenant : by_rank, first_rank, own_rank,
              first.spec.tenant, own.spec.tenant};
    default:
      return {by_rank};
  }
}

}  // namespace quire
