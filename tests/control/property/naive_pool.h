#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "control/scheduler.h"

namespace quire::test {

/// Who holds which block, what is cached under which prefix and what lies in the host pool:
/// docs/control-plane.md in sets and maps, searched in full. It is told what the scheduler is told and what
/// each StepPlan says, works out what that does to every block, and complains where a plan does anything
/// else. It knows nothing of BlockPool, PrefixCache or the eviction policies; which cached block gives way is
/// the plan's choice, but it must be one that may.
class NaivePool {
 public:
  explicit NaivePool(const SchedulerConfig& config);

  /// A sequence joins the queue; `tokens` are all that it will ever have.
  void add(const SeqSpec& spec, std::span<const TokenId> tokens);
  void abort(SeqId id);
  void reset();
  void plan(const StepPlan& plan);
  void commit(const StepPlan& plan, const std::vector<SeqEvent>& events);

  /// The first thing that was wrong, empty if nothing was.
  const std::string& error() const { return error_; }
  /// Complains if the scheduler counts otherwise.
  void compare(const StepStats& stats);

  size_t num_waiting() const { return waiting_.size(); }
  bool knows(SeqId id) const { return sequences_.contains(id); }

  /// What happened so far.
  struct Counts {
    uint64_t admissions = 0;
    uint64_t hits = 0;       // admissions that found some of their tokens in the prefix index
    uint64_t forks = 0;      // admissions that took blocks of their parent
    uint64_t overtakes = 0;  // admissions of another than the first in the queue
    uint64_t preemptions = 0;
    uint64_t chosen_victims = 0;  // of these, of another than the last admitted
    uint64_t protections = 0;     // sequences that were preempted 8 times
    uint64_t swapped_out = 0;     // blocks
    uint64_t swapped_in = 0;
    uint64_t too_big_to_swap = 0;  // preemptions by swap that the host pool had no room for
    uint64_t copies = 0;
    uint64_t deduplicated = 0;  // blocks that gave way to others with the same contents
    uint64_t evictions = 0;
    uint64_t left_behind = 0;  // blocks given back behind a window
    uint64_t forgotten = 0;    // blocks by reset
  };
  const Counts& counts() const { return counts_; }

 private:
  using Column = std::vector<BlockId>;  // by row; kNoBlock: given back
  struct Sequence {
    SeqId id = 0;
    uint64_t order = 0;  // of arrival
    std::optional<SeqId> fork_of;
    uint64_t salt = 0;
    std::string text;  // all its tokens, a character each
    uint32_t prompt = 0;
    uint32_t total = 0;  // so many of them it has now
    bool penalties = false;
    std::optional<SlotId> slot;
    uint32_t computed = 0;
    std::vector<Column> table;                        // by group
    std::set<std::pair<uint32_t, uint32_t>> changed;  // entries of it that the executor does not know yet
    std::vector<Column> host;                         // what it has in the host pool, as `table`
    uint32_t swapped = 0;                             // so many tokens
    uint32_t preemptions = 0;
  };
  /// Contents of a block: a group's K/V of the last tokens of a prefix.
  struct Contents {
    uint32_t group = 0;
    uint64_t salt = 0;
    std::string prefix;
    auto operator<=>(const Contents&) const = default;
  };
  struct Hit {
    uint32_t tokens = 0;
    std::vector<Column> blocks;
    bool of_parent = false;
  };

  template <typename... Args>
  void fail(const char* format, const Args&... args);

  // Blocks.
  bool is_held(BlockId block) const { return holders_.contains(block); }
  void allocate(BlockId block, SeqId by);
  void retain(BlockId block, SeqId by);
  void release(BlockId block, SeqId by);
  /// Releases what no token after the first `computed` reads, nor the last of these.
  void leave_behind(Sequence& seq, uint32_t computed);
  void clear(Sequence& seq);
  /// Publishes the rows that became full between so many tokens. Returns what other blocks took the place of.
  std::set<std::pair<uint32_t, uint32_t>> publish(Sequence& seq, uint32_t from, uint32_t to);
  Contents contents(const Sequence& seq, uint32_t group, uint32_t row) const;

  // Parts of a plan.
  void preempt(Sequence& seq, const StepPlan& plan);
  void admit(Sequence& seq, const NewSeq& added, const StepPlan& plan);
  void swap_in(Sequence& seq, const StepPlan& plan);
  void compute(Sequence& seq, const SeqStep& step, const StepPlan& plan);
  void copy_if_needed(Sequence& seq, uint32_t group, uint32_t row, const StepPlan& plan);
  void check_order(const StepPlan& plan);

  // What must be found for a sequence that comes in.
  bool reads(uint32_t group, uint32_t row, uint32_t position) const;
  const Sequence* parent_of(const Sequence& seq) const;
  bool waits_for_parent(const Sequence& seq) const;
  const Sequence* first_in_queue() const;
  Hit find(const Sequence& seq) const;
  std::optional<Hit> find_in_parent(const Sequence& seq) const;
  Hit find_in_index(const Sequence& seq) const;
  bool is_known(uint64_t salt, const std::string& prefix) const;
  /// There is room for it and the watermark, or nothing else runs.
  bool may_come_in(const Sequence& seq, const Hit& hit) const;
  void leave_queue(Sequence& seq);
  void give_back_host(Sequence& seq);
  void end(Sequence& seq);

  SchedulerConfig config_;
  uint32_t groups_ = 1;
  std::set<BlockId> free_;
  std::map<BlockId, std::multiset<SeqId>> holders_;
  std::map<Contents, BlockId> index_;
  std::map<BlockId, Contents> published_;
  std::set<BlockId> cached_;  // published and held by nobody
  std::set<BlockId> free_host_;

  std::map<SeqId, Sequence> sequences_;
  std::map<uint64_t, Sequence*> waiting_;  // by arrival
  std::vector<Sequence*> running_;         // in order of admission
  std::map<SlotId, Sequence*> by_slot_;
  std::set<SlotId> gone_;  // slots taken back that the executor was not told of
  uint64_t arrivals_ = 0;

  // Of the plan under way.
  std::map<BlockId, std::multiset<SeqId>> held_before_;  // if it preempts
  uint64_t preempts_ = 0;
  size_t moves_out_ = 0;  // claimed by a sequence
  size_t moves_in_ = 0;
  std::set<size_t> copies_;                                            // claimed
  std::set<std::tuple<SlotId, uint32_t, uint32_t, BlockId>> updates_;  // that there must be
  bool batch_fills_ = false;  // static batching: the last plan had no tokens left for all

  Counts counts_;
  std::string error_;
};

}  // namespace quire::test
