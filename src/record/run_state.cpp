#include "record/run_state.h"

#include <algorithm>
#include <utility>

namespace quire::record {

namespace {

constexpr size_t kMostOpen = 16;  // plans

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

RunState::RunState(control::Scheduler& scheduler)
    : config_(scheduler.config()), step_(scheduler.next_step() - 1) {
  std::vector<const control::Sequence*> all(scheduler.running().begin(), scheduler.running().end());
  all.insert(all.end(), scheduler.waiting().begin(), scheduler.waiting().end());
  std::ranges::sort(all, {}, &control::Sequence::arrival);
  for (const control::Sequence* seq : all) add_as_it_is(*seq);
  for (const control::Sequence* seq : scheduler.running()) running_.push_back(seq->spec.id);
  const control::PrefixCache& cache = scheduler.pool().cache();
  for (uint32_t block = 0; block < cache.num_blocks(); ++block) {
    if (cache.contains(block)) published_[block] = 1;
  }
}

void RunState::add_as_it_is(const control::Sequence& from) {
  LiveSequence seq;
  seq.id = from.spec.id;
  seq.index = num_added_++;
  seq.parent = from.spec.fork_of;
  seq.prompt = from.prompt_length;
  seq.most = from.longest - from.prompt_length;
  seq.total = from.total();
  seq.computed = from.computed;
  seq.preemptions = from.preemptions;
  seq.admitted = from.first_admitted;
  if (from.first_admitted) num_admitted_ = std::max(num_admitted_, *from.first_admitted + 1);
  seq.running = from.slot != kNoSlot;
  seq.waits = seq.running ? control::WaitReason::kNone : from.waits_for;
  if (seq.waits == control::WaitReason::kBlocks) first_ = seq.id;
  for (uint32_t group = 0; group < from.table.num_groups(); ++group) {
    for (const BlockId block : from.table.blocks(group)) {
      if (block != kNoBlock) hold(&seq, block, true);
    }
  }
  for (const BlockId block : from.host) {
    if (block == kNoBlock) continue;
    seq.host.push_back(host_fresh_++);
    ++host_used_;
  }
  live_.try_emplace(seq.id, std::move(seq));
}

const std::vector<PlannedPart>& RunState::parts_of(const RunCommit& commit) const {
  static const std::vector<PlannedPart> kNone;
  const auto open = std::ranges::find(open_, commit.step, &OpenPlan::step);
  return open == open_.end() ? kNone : open->parts;
}

bool RunState::runs_on(const PlannedPart& part) const {
  const LiveSequence* seq = find(part.id);
  return seq != nullptr && seq->running && seq->admissions == part.admissions;
}

const LiveSequence* RunState::first_in_line() const {
  const LiveSequence* seq = first_ ? find(*first_) : nullptr;
  return seq != nullptr && !seq->running && seq->waits == control::WaitReason::kBlocks ? seq : nullptr;
}

uint32_t RunState::holders(uint32_t block) const { return holders_.at(block); }

/// A waiting sequence holds nothing.
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
  if (const auto* decision = std::get_if<control::Decision>(&event)) return take(*decision);
  if (const auto* cause = std::get_if<control::Cause>(&event)) {
    if (cause->kind == control::CauseKind::kFirst) first_ = cause->seq;
    LiveSequence* first = cause->kind == control::CauseKind::kShort ? live_.find(cause->seq) : nullptr;
    if (first != nullptr) first->needs = cause->a;
    if (cause->kind == control::CauseKind::kPublished) published_[cause->a] = 1;
    LiveSequence* follower = cause->kind == control::CauseKind::kFollows ? live_.find(cause->seq) : nullptr;
    if (follower != nullptr) follower->leader = cause->other;
    return;
  }
  added_.reset();
  if (const auto* cached = std::get_if<RunCached>(&event)) {
    for (const PrefixNode& node : cached->nodes) {
      for (const BlockId block : node.blocks) {
        if (block != kNoBlock) published_[block] = 1;
      }
    }
  }
  if (const auto* plan = std::get_if<RunPlan>(&event)) begin_step(*plan);
}

void RunState::take(const RunAdd& add) {
  LiveSequence& seq = added_.emplace();
  seq.id = add.spec.id;
  seq.index = num_added_++;
  seq.parent = add.spec.fork_of;
  seq.prompt = static_cast<uint32_t>(add.spec.prompt.size());
  seq.total = seq.prompt;
  seq.most = std::max(add.spec.max_tokens, 1U);  // without any it ends as if with one
}

void RunState::begin_step(const RunPlan& plan) {
  step_ = plan.step;
  now_ = plan.now;
  planned_.clear();
  if (!open_.empty() && open_.back().parts.empty()) open_.pop_back();  // it was not a step
  if (open_.size() > kMostOpen) open_.pop_front();                     // in a damaged record
  open_.push_back({plan.step, {}});
  for (const SeqId id : running_) live_.find(id)->planned = 0;
}

void RunState::take(const RunCommit& commit) {
  const auto open = std::ranges::find(open_, commit.step, &OpenPlan::step);
  if (open == open_.end()) return;
  const std::vector<PlannedPart> parts = std::move(open->parts);
  open_.erase(open);
  for (size_t i = 0; i < std::min(commit.results.size(), parts.size()); ++i) {
    LiveSequence* found = live_.find(parts[i].id);
    if (found == nullptr || commit.results[i].failed) continue;
    LiveSequence& seq = *found;
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

/// The host blocks are not recorded; the scheduler takes the most recently released first, as is done here.
/// Moved blocks are no longer held: a damaged record cannot move them twice.
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

void RunState::take(const control::Decision& decision) {
  if (decision.kind == control::DecisionKind::kAdd && added_ && added_->id == decision.seq) {
    live_.try_emplace(decision.seq, *added_);
    added_.reset();
    return;
  }
  LiveSequence* seq = live_.find(decision.seq);
  if (decision.kind == control::DecisionKind::kAllocate || decision.kind == control::DecisionKind::kShare) {
    return hold(seq, decision.a, true);
  }
  if (decision.kind == control::DecisionKind::kRelease) return hold(seq, decision.a, false);
  if (decision.kind == control::DecisionKind::kEvict) {
    published_[decision.a] = 0;
    return;
  }
  if (seq == nullptr) return;
  switch (decision.kind) {
    case control::DecisionKind::kSkip:
      seq->waits =
          static_cast<control::WaitReason>(std::min<uint32_t>(decision.a, std::size(kWaitNames) - 1));
      seq->needs = decision.b;
      break;
    case control::DecisionKind::kAdmit:
      if (!std::exchange(seq->running, true)) running_.push_back(seq->id);
      if (!seq->admitted) seq->admitted = num_admitted_++;
      seq->waits = control::WaitReason::kNone;
      ++seq->admissions;
      seq->computed = std::min(decision.b, seq->total);
      free_host(*seq);
      break;
    case control::DecisionKind::kChunk:
      if (!seq->running || open_.empty()) break;
      seq->decoding = seq->decodes();
      seq->planned = std::min(decision.b, seq->left());
      if (seq->planned == seq->left()) ++seq->pending;
      seq->in_flight += seq->planned;
      planned_.push_back(seq->id);
      open_.back().parts.push_back({seq->id, seq->planned, seq->admissions});
      break;
    case control::DecisionKind::kPreempt:
      stop(*seq);
      seq->preemptions = decision.b;
      break;
    case control::DecisionKind::kSwapOut:
      swap_out(*seq, decision.a);
      break;
    case control::DecisionKind::kFinish:
      stop(*seq);
      free_host(*seq);
      live_.erase(decision.seq);
      break;
    default:
      break;
  }
}

}  // namespace quire::record
