#include "record/run_state.h"

#include <algorithm>
#include <utility>

namespace quire {
namespace {

constexpr uint32_t kProtectedFrom = 8;  // preemptions; Sequence::is_protected

}  // namespace

Phase LiveSequence::phase() const {
  if (running && planned == 0) return left() > 0 ? Phase::kStalled : Phase::kDecode;
  if (running) return decoding ? Phase::kDecode : Phase::kPrefill;
  if (!admitted) return Phase::kQueued;
  return host.empty() ? Phase::kPreempted : Phase::kSwapped;
}

uint32_t LiveSequence::left() const {
  const uint64_t known = uint64_t{total} + pending;
  return known >= uint64_t{prompt} + most || known <= next() ? 0 : static_cast<uint32_t>(known) - next();
}

const std::vector<PlannedPart>& RunState::due() const {
  static const std::vector<PlannedPart> kNone;
  return open_.empty() ? kNone : open_.front();
}

bool RunState::runs_on(const PlannedPart& part) const {
  const LiveSequence* seq = find(part.id);
  return seq != nullptr && seq->running && seq->admissions == part.admissions;
}

const LiveSequence* RunState::find(SeqId id) const {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : &found->second;
}

const LiveSequence* RunState::first_in_line() const {
  const LiveSequence* seq = first_ ? find(*first_) : nullptr;
  return seq != nullptr && !seq->running && seq->waits == WaitReason::kBlocks ? seq : nullptr;
}

/// Decodes get their part in order, so it is the first of them after the last that got one.
const LiveSequence* RunState::needy() const {
  auto from = decodes_.begin();
  if (!planned_.empty()) {
    const auto last = std::ranges::find(decodes_, planned_.back());
    if (last == decodes_.end()) return nullptr;  // a prefill preempts nobody
    from = last + 1;
  }
  for (; from != decodes_.end(); ++from) {
    const LiveSequence* seq = find(*from);
    if (seq != nullptr && seq->running) return seq;
  }
  return nullptr;
}

uint32_t RunState::holders(uint32_t block) const {
  const auto found = holders_.find(block);
  return found == holders_.end() ? 0 : found->second;
}

/// Who waits holds nothing.
uint32_t RunState::num_holders() const {
  return static_cast<uint32_t>(
      std::ranges::count_if(running_, [&](SeqId id) { return find(id)->blocks > 0; }));
}

std::vector<const LiveSequence*> RunState::largest_holders(size_t most) const {
  std::vector<const LiveSequence*> held;
  for (const SeqId id : running_) {
    const LiveSequence* seq = find(id);
    if (seq->blocks > 0) held.push_back(seq);
  }
  const auto larger = [](const LiveSequence* a, const LiveSequence* b) {
    return a->blocks != b->blocks ? a->blocks > b->blocks : a->id < b->id;
  };
  const size_t kept = std::min(most, held.size());
  std::ranges::partial_sort(held, held.begin() + static_cast<ptrdiff_t>(kept), larger);
  held.resize(kept);
  return held;
}

void RunState::take(const RunEvent& event) {
  if (const auto* add = std::get_if<RunAdd>(&event)) return take(*add);
  if (const auto* commit = std::get_if<RunCommit>(&event)) return take(*commit);
  if (const auto* decision = std::get_if<Decision>(&event)) return take(*decision);
  added_.reset();
  if (const auto* plan = std::get_if<RunPlan>(&event)) begin_step(plan->now);
}

void RunState::take(const RunAdd& add) {
  LiveSequence& seq = added_.emplace();
  seq.id = add.spec.id;
  seq.index = num_added_++;
  seq.parent = add.spec.fork_of;
  seq.prompt = static_cast<uint32_t>(add.spec.prompt.size());
  seq.total = seq.prompt;
  seq.most = add.spec.max_tokens;
}

void RunState::begin_step(Nanos now) {
  ++step_;
  now_ = now;
  planned_.clear();
  decodes_.clear();
  if (!open_.empty() && open_.back().empty()) open_.pop_back();  // it was no step
  open_.emplace_back();
  for (const SeqId id : running_) {
    LiveSequence& seq = live_.at(id);
    seq.planned = 0;
    if (seq.decodes()) decodes_.push_back(id);
  }
  // Protected ones first, the others as they came in (Scheduler::plan_decodes).
  std::ranges::stable_sort(decodes_, {}, [this](SeqId id) {
    const LiveSequence& seq = live_.at(id);
    return seq.preemptions >= kProtectedFrom ? *seq.admitted : UINT64_MAX;
  });
}

void RunState::take(const RunCommit& commit) {
  if (open_.empty()) return;
  const std::vector<PlannedPart> parts = std::move(open_.front());
  open_.pop_front();
  for (size_t i = 0; i < std::min(commit.results.size(), parts.size()); ++i) {
    const auto found = live_.find(parts[i].id);
    if (found == live_.end() || commit.results[i].failed) continue;
    LiveSequence& seq = found->second;
    if (runs_on(parts[i])) {
      seq.computed += parts[i].tokens;
      seq.in_flight -= std::min(seq.in_flight, parts[i].tokens);
    }
    if (!commit.results[i].token) continue;
    ++seq.total;
    if (seq.pending > 0) --seq.pending;
  }
}

void RunState::hold(LiveSequence* seq, uint32_t block, bool more) {
  uint32_t& count = holders_[block];
  if (more) {
    blocks_held_ += count++ == 0 ? 1 : 0;
    if (seq != nullptr) ++seq->blocks;
  } else if (count > 0) {
    blocks_held_ -= --count == 0 ? 1 : 0;
    if (seq != nullptr && seq->blocks > 0) --seq->blocks;
  }
}

/// Which blocks of the host pool is not recorded; the scheduler takes the last given back first, as here.
/// What is moved is held no more: a broken record cannot move it twice.
void RunState::swap_out(LiveSequence& seq, uint32_t blocks) {
  const uint32_t moved = std::min(blocks, std::exchange(seq.blocks, 0));
  for (uint32_t i = 0; i < moved; ++i) {
    if (host_used_ == config_.num_host_blocks) return;
    ++host_used_;
    if (free_host_.empty()) {
      seq.host.push_back(host_fresh_++);
    } else {
      seq.host.push_back(free_host_.back());
      free_host_.pop_back();
    }
  }
}

void RunState::free_host(LiveSequence& seq) {
  free_host_.insert(free_host_.end(), seq.host.begin(), seq.host.end());
  host_used_ -= static_cast<uint32_t>(seq.host.size());
  seq.host.clear();
}

void RunState::stop(LiveSequence& seq) {
  if (std::exchange(seq.running, false)) std::erase(running_, seq.id);
  seq.computed = seq.planned = seq.in_flight = 0;
}

void RunState::take(const Decision& decision) {
  if (decision.kind == DecisionKind::kAdd && added_ && added_->id == decision.seq) {
    live_.try_emplace(decision.seq, *added_);
    added_.reset();
    return;
  }
  const auto found = live_.find(decision.seq);
  LiveSequence* seq = found == live_.end() ? nullptr : &found->second;
  if (decision.kind == DecisionKind::kAllocate || decision.kind == DecisionKind::kShare) {
    return hold(seq, decision.a, true);
  }
  if (decision.kind == DecisionKind::kRelease) return hold(seq, decision.a, false);
  if (seq == nullptr) return;
  switch (decision.kind) {
    case DecisionKind::kSkip:
      seq->waits = static_cast<WaitReason>(std::min<uint32_t>(decision.a, std::size(kWaitNames) - 1));
      seq->needs = decision.b;
      if (seq->waits == WaitReason::kBlocks) first_ = seq->id;
      break;
    case DecisionKind::kAdmit:
      if (!std::exchange(seq->running, true)) running_.push_back(seq->id);
      if (!seq->admitted) seq->admitted = num_admitted_++;
      seq->waits = WaitReason::kNone;
      ++seq->admissions;
      seq->computed = std::min(decision.b, seq->total);
      free_host(*seq);
      break;
    case DecisionKind::kChunk:
      if (!seq->running || open_.empty()) break;
      seq->decoding = seq->decodes();
      seq->planned = std::min(decision.b, seq->left());
      if (seq->planned == seq->left()) ++seq->pending;
      seq->in_flight += seq->planned;
      planned_.push_back(seq->id);
      open_.back().push_back({seq->id, seq->planned, seq->admissions});
      break;
    case DecisionKind::kPreempt:
      stop(*seq);
      seq->preemptions = decision.b;
      break;
    case DecisionKind::kSwapOut:
      swap_out(*seq, decision.a);
      break;
    case DecisionKind::kFinish:
      stop(*seq);
      free_host(*seq);
      live_.erase(found);
      break;
    default:
      break;
  }
}

void follow_run(RunReader& reader, RunListener& listener) {
  RunState state(reader.config());
  bool open = false;  // a plan, of which decisions may follow
  while (const auto event = reader.next()) {
    if (open && !std::holds_alternative<Decision>(*event)) {
      listener.planned(state);
      open = false;
    }
    listener.before(*event, state);
    state.take(*event);
    listener.after(*event, state);
    open = open || std::holds_alternative<RunPlan>(*event);
  }
  if (open) listener.planned(state);
}

}  // namespace quire
