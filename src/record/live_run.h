#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "record/live_view.h"
#include "record/run_tap.h"
#include "record/step_changes.h"

namespace quire::record {

/// A run that goes on, followed for any number of views. It begins with the state of the run at some moment
/// and remembers no more than that state and the sequences since. Not thread-safe.
class LiveRun final : private StepChanges {
 public:
  explicit LiveRun(RunStart start);
  LiveRun(const LiveRun&) = delete;

  /// What happened since the last batch. Its views are told; they must outlive it or be removed.
  void take(const RunTap::Batch& batch);
  /// The view begins with the present state, and is told of all that follows.
  void add(LiveView& view);
  void remove(LiveView& view) { std::erase(views_, &view); }
  /// It remembers so many sequences or sentences that a new one should begin.
  bool is_full() const { return num_sequences_ > kMostSequences || causes_.bytes() > kMostBytes; }

  const RunState& state() const { return follower_.state(); }
  const SequenceInfo& info_of(size_t index) const;
  std::string tenant_name(uint64_t tenant) const { return names_.name(tenant); }
  const std::vector<std::string>& causes() const { return causes_.all(); }
  PoolNumbers pool() const;
  uint32_t num_groups() const { return num_groups_; }
  /// The sequences that hold a block, by index.
  const std::vector<size_t>& holders_of(uint32_t block) const { return holders_[block]; }
  /// Of a block that is held or cached.
  uint32_t group_of(uint32_t block) const { return groups_.empty() ? 0 : groups_[block]; }
  uint64_t next_step() const { return state().step() + 1; }
  /// `each(block, holders, cached)` for each block that is held or cached; the holders by index.
  void for_each_block(const auto& each) const {
    for (uint32_t block = 0; block < holders_.size(); ++block) {
      const bool cached = holders_[block].empty() && state().published(block);
      if (!holders_[block].empty() || cached) each(block, holders_[block], cached);
    }
  }

 private:
  static constexpr size_t kMostSequences = 200'000;
  static constexpr uint64_t kMostBytes = 4 << 20;

  void added(const RunAdd& add, size_t index) override;
  void begins(const RunPlan& plan, const RunState& state) override;
  void ended(const RunCommit& commit) override;
  void changes(const Change& change) override;
  void changes_host(const Change& change) override;
  void cached_before(uint32_t /*block*/) override {}
  void decided(const Event& event, const LiveSequence* seq) override;
  void looks(const LiveSequence& seq, const Look& look) override;
  void plan_is_told(const RunState& state, const StepNumbers& numbers) override;

  RunFollower follower_;
  std::vector<LiveView*> views_;
  TenantNames names_;
  std::unordered_map<size_t, SequenceInfo> infos_;     // of sequences that are there, by index
  std::vector<size_t> over_;                           // sequences that have ended since the last plan
  std::vector<std::vector<size_t>> holders_;           // by block, as indices
  uint32_t cached_ = 0;                                // blocks
  std::array<std::pair<uint64_t, Nanos>, 8> begun_{};  // the last steps, by step modulo 8
  uint32_t budget_;
  uint32_t num_groups_;
  std::vector<uint32_t> groups_;  // by block; empty if there is one group
  size_t num_sequences_ = 0;
};

}  // namespace quire::record
