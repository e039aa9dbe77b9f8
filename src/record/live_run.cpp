#include "record/live_run.h"

#include <algorithm>
#include <string_view>

namespace quire::record {
namespace {

std::string_view how_it_ended(uint32_t reason) {
  constexpr std::array<std::string_view, 4> kHow{"stop", "max_tokens reached", "aborted", "executor failed"};
  return reason < kHow.size() ? kHow[reason] : "ended";
}

}  // namespace

LiveRun::LiveRun(RunStart start)
    : follower_(std::move(start.state), *this),
      budget_(start.budget),
      num_groups_(start.num_groups),
      groups_(std::move(start.groups)) {
  num_sequences_ = start.sequences.size();
  std::vector<const LiveSequence*> sequences(num_sequences_);
  for (const auto& [id, seq] : state().live()) sequences[seq.index] = &seq;
  for (const LiveSequence* seq : sequences) {
    const SequenceInfo& info = start.sequences[seq->index];
    infos_[seq->index] = info;
    names_.add(info.tenant);
    begin_with(*seq, info.tenant);
  }
  holders_.resize(state().config().num_blocks);
  for (const auto& [block, seq] : start.held) {
    holders_[block].push_back(seq);
    shared_ += holders_[block].size() == 2 ? 1 : 0;
  }
  for (uint32_t block = 0; block < state().config().num_blocks; ++block) {
    cached_ += state().published(block) && holders_[block].empty() ? 1 : 0;
  }
}

const SequenceInfo& LiveRun::info_of(size_t index) const {
  static const SequenceInfo kUnknown;
  const auto found = infos_.find(index);
  return found == infos_.end() ? kUnknown : found->second;
}

PoolNumbers LiveRun::pool() const {
  return {static_cast<uint32_t>(state().blocks_held()), shared_, cached_,
          state().config().num_host_blocks - state().host_blocks_free(), budget_};
}

void LiveRun::add(LiveView& view) {
  view.begin(*this);
  views_.push_back(&view);
}

void LiveRun::take(const RunTap::Batch& batch) {
  const auto each = [this](const RunEvent& event) {
    if (const auto* budget = std::get_if<RunBudget>(&event)) budget_ = budget->tokens;
    follower_.take(event);
    const auto* decision = std::get_if<control::Decision>(&event);
    if (decision == nullptr || decision->kind != control::DecisionKind::kAdd) return;
    const LiveSequence* seq = state().find(decision->seq);
    if (seq == nullptr) return;
    for (LiveView* view : views_) view->added(*this, *seq);
  };
  batch.for_each(each, [this](BlockId block, uint32_t group) { groups_[block] = group; });
  follower_.end();  // a batch ends between two calls of the scheduler
}

void LiveRun::added(const RunAdd& add, size_t index) {
  names_.add(add.spec.tenant);
  infos_[index] = {add.name, add.spec.tenant, add.spec.arrived, add.spec.priority};
  ++num_sequences_;
}

void LiveRun::begins(const RunPlan& plan, const RunState& /*state*/) {
  begun_[plan.step % begun_.size()] = {plan.step, plan.now};
  for (LiveView* view : views_) view->begins(plan.step, plan.now);
  for (const size_t index : over_) infos_.erase(index);
  over_.clear();
}

void LiveRun::ended(const RunCommit& commit) {
  const auto [step, began] = begun_[commit.step % begun_.size()];
  if (step != commit.step) return;
  for (LiveView* view : views_) view->ended(commit.step, std::max<Nanos>(0, commit.now - began));
}

void LiveRun::changes(const Change& change) {
  std::vector<size_t>& holders = holders_.at(change.block);
  const bool was_cached = holders.empty() && state().published(change.block);
  if (change.kind == RunTimeline::kTake) {
    holders.push_back(change.seq);
    cached_ -= was_cached ? 1 : 0;
  } else if (has_seq(change.kind)) {
    const auto own = std::ranges::find(holders, change.seq);
    if (own != holders.end()) holders.erase(own);
    cached_ += change.kind == RunTimeline::kDropToCache ? 1 : 0;
  } else if (change.kind == RunTimeline::kEvict) {
    cached_ -= was_cached ? 1 : 0;
  } else {
    ++cached_;
  }
  for (LiveView* view : views_) view->changes(change, false);
}

void LiveRun::changes_host(const Change& change) {
  for (LiveView* view : views_) view->changes(change, true);
}

void LiveRun::decided(const Event& event, const LiveSequence* seq) {
  for (LiveView* view : views_) view->decided(event);
  if (event.kind != control::DecisionKind::kFinish || seq == nullptr) return;
  for (LiveView* view : views_) view->over(*seq, how_it_ended(event.a));
  over_.push_back(event.seq);
}

void LiveRun::looks(const LiveSequence& seq, const Look& look) {
  for (LiveView* view : views_) view->looks(seq, look);
}

void LiveRun::plan_is_told(const RunState& /*state*/, const StepNumbers& /*numbers*/) {
  for (LiveView* view : views_) view->plan_is_told(*this);
}

}  // namespace quire::record
