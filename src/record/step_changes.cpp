#include "record/step_changes.h"

#include <span>
#include <utility>

namespace quire::record {

void StepChanges::begin_with(const LiveSequence& seq, uint64_t tenant) {
  index_of_.insert_or_assign(seq.id, seq.index);
  causes_.add(tenant);
  num_added_ = seq.index + 1;
}

void StepChanges::before(const RunEvent& event, const RunState& state) {
  if (const auto* plan = std::get_if<RunPlan>(&event)) {
    begins(*plan, state);
  } else if (const auto* decision = std::get_if<control::Decision>(&event)) {
    const LiveSequence* seq = state.find(decision->seq);
    host_before_ = seq == nullptr ? 0 : seq->host.size();
    decide(*decision, state);
  } else if (const auto* commit = std::get_if<RunCommit>(&event)) {
    ended(*commit);
  } else if (const auto* cause = std::get_if<control::Cause>(&event)) {
    if (cause->kind == control::CauseKind::kVictim) victim_ = *cause;
    const LiveSequence* seq = state.find(cause->seq);
    if (seq != nullptr) causes_.take(*cause, seq->index);
  } else if (const auto* cached = std::get_if<RunCached>(&event)) {
    for (const PrefixNode& node : cached->nodes) {
      for (const BlockId block : node.blocks) {
        if (block != kNoBlock) cached_before(block);
      }
    }
  } else if (const auto* add = std::get_if<RunAdd>(&event)) {
    added(*add, num_added_++);
    causes_.add(add->spec.tenant);
  }
}

void StepChanges::after(const RunEvent& event, const RunState& state) {
  const auto* decision = std::get_if<control::Decision>(&event);
  if (decision == nullptr) return;
  const LiveSequence* seq = state.find(decision->seq);
  if (seq == nullptr) return;
  if (decision->kind == control::DecisionKind::kAdd) index_of_.insert_or_assign(seq->id, seq->index);
  if (decision->kind != control::DecisionKind::kSwapOut) return;
  for (const uint32_t block : std::span(seq->host).subspan(host_before_)) {
    changes_host({block, RunTimeline::kTake, seq->index});
  }
}

void StepChanges::decide(const control::Decision& decision, const RunState& state) {
  const LiveSequence* seq = state.find(decision.seq);
  switch (decision.kind) {
    case control::DecisionKind::kAdd:
      return;
    case control::DecisionKind::kAllocate:
    case control::DecisionKind::kShare:
    case control::DecisionKind::kRelease:
    case control::DecisionKind::kEvict:
      return change_block(decision, state);
    case control::DecisionKind::kChunk:
      if (seq != nullptr && seq->decodes()) return;
      break;
    case control::DecisionKind::kAdmit:
    case control::DecisionKind::kFinish:
      free_host(seq);
      break;
    default:
      break;
  }
  if (!watches()) return;
  Event event{decision.kind, decision.a, decision.b};
  if (seq != nullptr) event.seq = seq->index;
  if (decision.kind == control::DecisionKind::kPreempt) {
    const std::optional<control::Cause> cause = std::exchange(victim_, std::nullopt);
    if (cause) event.cause = causes_.why_preempted(*cause);
  }
  decided(event, seq);
}

void StepChanges::free_host(const LiveSequence* seq) {
  if (seq == nullptr) return;
  for (const uint32_t block : seq->host) changes_host({block, RunTimeline::kDrop, seq->index});
}

void StepChanges::change_block(const control::Decision& decision, const RunState& state) {
  const uint32_t block = decision.a;
  if (decision.kind == control::DecisionKind::kEvict)
    return changes({block, RunTimeline::kEvict, kNoSequence});
  if (decision.kind == control::DecisionKind::kRelease) {
    if (state.holders(block) > 0) release(decision, state);  // otherwise the record is damaged
    return;
  }
  // By no sequence when the prefix cache is restored: its blocks are allocated, published and released.
  const size_t* found = index_of_.find(decision.seq);
  if (found == nullptr) return;
  shared_ += state.holders(block) == 1 ? 1 : 0;
  changes({block, RunTimeline::kTake, *found});
}

void StepChanges::release(const control::Decision& decision, const RunState& state) {
  const uint32_t block = decision.a;
  const bool stays = state.holders(block) == 1 && state.published(block);
  if (const size_t* found = index_of_.find(decision.seq)) {
    shared_ -= state.holders(block) == 2 ? 1 : 0;
    changes({block, stays ? RunTimeline::kDropToCache : RunTimeline::kDrop, *found});
  } else if (stays) {
    changes({block, RunTimeline::kIsCached, kNoSequence});
  }
}

Look StepChanges::look_of(const LiveSequence& seq, const LiveSequence* first, const RunState& state) {
  Look now{.phase = seq.phase()};
  if (!seq.running) now.waits = seq.waits;
  const LiveSequence* before = nullptr;
  if (now.waits == control::WaitReason::kOrder) before = first;
  if (now.waits == control::WaitReason::kParent && seq.parent) before = state.find(*seq.parent);
  if (now.waits == control::WaitReason::kPrefix && seq.leader) before = state.find(*seq.leader);
  if (before == nullptr) return now;
  now.behind = static_cast<uint32_t>(before->index);
  if (now.waits == control::WaitReason::kOrder) now.cause = causes_.why_behind(seq.index);
  return now;
}

void StepChanges::planned(const RunState& state) {
  if (!watches()) return;
  StepNumbers numbers{.running = state.running(),
                      .waiting = state.waiting(),
                      .held = static_cast<uint32_t>(state.blocks_held()),
                      .shared = shared_,
                      .host = state.config().num_host_blocks - state.host_blocks_free()};
  const LiveSequence* first = state.first_in_line();
  for (const auto& [id, seq] : state.live()) {
    const Look now = look_of(seq, first, state);
    if (now.phase == Phase::kPrefill) numbers.prefill_tokens += seq.planned;
    if (now.phase == Phase::kDecode) numbers.decode_tokens += seq.planned;
    looks(seq, now);
  }
  plan_is_told(state, numbers);
}

}  // namespace quire::record
