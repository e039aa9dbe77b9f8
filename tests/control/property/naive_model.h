#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "control/scheduler.h"

namespace quire::test {

/// The control plane as docs/control-plane.md tells it, in sets and maps that are searched in full: who holds
/// which block, what is cached under which prefix, what lies in the host pool, who runs and who gives way. It
/// is told what the scheduler is told, follows each StepPlan and complains where that does anything else. It
/// shares no code with BlockPool, PrefixCache, the policies or the scheduler.
///
/// Left to the plan are the numbers of slots and blocks, which cached block is evicted (but it must be one
/// that may, and none may be free), and the order of `srpt` where lengths are estimated.
class NaiveModel {
 public:
  explicit NaiveModel(const control::SchedulerConfig& config);

  /// A sequence joins the queue; `tokens` are all that it will ever have.
  void add(const control::SeqSpec& spec, std::span<const TokenId> tokens);
  void abort(SeqId id);
  void reset();
  void set_budget(uint32_t tokens) { wanted_budget_ = tokens; }
  void plan(const control::StepPlan& plan);
  void commit(const control::StepPlan& plan, const std::vector<control::SeqEvent>& events);
  /// Complains if the scheduler counts otherwise.
  void compare(const control::StepStats& stats);

  /// The first thing that was wrong, empty if nothing was.
  const std::string& error() const { return error_; }

  size_t num_waiting() const { return waiting_.size(); }
  size_t num_running() const { return running_.size(); }
  bool knows(SeqId id) const { return sequences_.contains(id); }
  bool has_run(SeqId id) const { return knows(id) && sequences_.at(id).first_admitted.has_value(); }

  /// What happened so far.
  struct Counts {
    uint64_t admissions = 0;
    uint64_t hits = 0;        // admissions that found some of their tokens in the prefix index
    uint64_t forks = 0;       // admissions that took blocks of their parent
    uint64_t late_forks = 0;  // of these, with tokens that the parent generated
    uint64_t overtakes = 0;   // admissions before one that arrived earlier and could have come in
    uint64_t followers = 0;   // passed over, since another computed what they would compute
    uint64_t preemptions = 0;
    uint64_t chosen_victims = 0;  // of these, of another than the last admitted would be
    uint64_t short_chunks = 0;    // shorter because of what lies before them
    uint64_t protections = 0;     // sequences that were preempted 8 times
    uint64_t swapped_out = 0;     // blocks
    uint64_t swapped_in = 0;
    uint64_t too_big_to_swap = 0;  // preemptions that the host pool had no room for
    uint64_t copies = 0;
    uint64_t deduplicated = 0;  // blocks that gave way to others with the same contents
    uint64_t evictions = 0;
    uint64_t left_behind = 0;  // blocks given back behind a window
    uint64_t forgotten = 0;    // blocks, by reset
  };
  const Counts& counts() const { return counts_; }

 private:
  using Column = std::vector<BlockId>;          // by row; kNoBlock: given back
  using Entry = std::pair<uint32_t, uint32_t>;  // group, row
  struct Sequence {
    control::SeqSpec spec;
    uint64_t order = 0;  // of arrival
    std::string text;    // all tokens it will ever have, a character each
    uint32_t prompt = 0;
    uint32_t total = 0;  // so many of them it has now
    std::optional<SlotId> slot;
    std::optional<uint64_t> first_admitted;
    uint32_t generation = 0;  // of the slot that it has or had
    uint32_t computed = 0;    // by steps whose results are known
    uint32_t in_flight = 0;   // tokens that open steps compute
    uint32_t pending = 0;     // tokens that open steps sample
    std::optional<uint32_t>
        lacks;                  // the first row of its prompt that is missing; nullopt: it wants nothing more
    uint32_t yields = 0;        // open steps that compute a chunk of a prompt that lacks something
    bool planned = false;       // has a part in the plan that is followed
    std::vector<Column> table;  // by group
    std::set<Entry> changed;    // entries that the executor does not know yet
    std::vector<Column> host;   // what it has in the host pool, as `table`
    uint32_t swapped = 0;       // so many tokens
    uint32_t preemptions = 0;
    uint32_t passed = 0;  // by so many that arrived later

    SeqId id() const { return spec.id; }
    uint32_t next() const { return computed + in_flight; }
    bool samples_its_last() const { return total + pending == prompt + std::max(spec.max_tokens, 1U); }
    bool adds_up() const { return lacks && spec.wants.pooling == Pooling::kMean; }
    bool may_skip(uint32_t position) const { return !adds_up() && (!lacks || position < *lacks); }
    uint32_t remaining() const { return samples_its_last() ? 0 : total + pending - next(); }
    bool is_protected() const { return preemptions >= 8; }
    bool decoding() const { return next() >= prompt && remaining() == 1; }
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
    std::vector<Column> blocks;  // by group
    bool of_parent = false;
  };

  template <typename... Args>
  void fail(const char* format, const Args&... args);

  // Blocks.
  bool is_held(BlockId block) const { return holders_.contains(block); }
  size_t available() const { return free_.size() + cached_.size(); }
  void allocate(BlockId block, SeqId by);
  void retain(BlockId block, SeqId by);
  void release(BlockId block, SeqId by);
  /// Releases what neither the last of the first `computed` tokens reads nor any after them.
  void leave_behind(Sequence& seq, uint32_t computed);
  void clear(Sequence& seq);
  /// Publishes the rows that become full between so many tokens. Returns where another block took the place.
  std::set<Entry> publish(Sequence& seq, uint32_t from, uint32_t to);
  Contents contents(const Sequence& seq, uint32_t group, uint32_t row) const;
  void join_queue(Sequence& seq);
  void leave_queue(Sequence& seq);
  void end(Sequence& seq);

  // Parts of a plan.
  void plan_decodes(const control::StepPlan& plan);
  void plan_prefill(const control::StepPlan& plan);
  void compute_chunk(Sequence& seq, const control::StepPlan& plan);
  void plan_admissions(const control::StepPlan& plan);
  Sequence* victim_for(const Sequence& needy, control::VictimKind kind);
  void preempt(Sequence& seq, const control::StepPlan& plan);
  void swap_out(Sequence& seq, const control::StepPlan& plan);
  void admit(Sequence& seq, const control::NewSeq& added, const control::StepPlan& plan);
  void swap_in(Sequence& seq, const control::StepPlan& plan);
  /// The next step of the plan must be of so many tokens of that sequence.
  void compute(Sequence& seq, uint64_t tokens, const control::StepPlan& plan);
  void compare_prompt(Sequence& seq, uint32_t begin, uint32_t end, const control::StepPlan& plan);
  void copy_if_shared(Sequence& seq, uint32_t group, uint32_t row, const control::StepPlan& plan);
  /// So many tokens it can compute, given what can be allocated.
  uint64_t room(const Sequence& seq) const;
  bool writable(BlockId block) const;

  // Who comes in, and with what.
  const Sequence* parent_of(const Sequence& seq) const;
  bool waits_for_parent(const Sequence& seq) const;
  bool computes_for(const Sequence& seq) const;
  /// Lower comes first; nullopt: only the scheduler knows.
  std::optional<int64_t> rank(const Sequence& seq) const;
  /// The first in the queue by rank; nullptr if nobody or only the scheduler knows.
  Sequence* first_by_rank();
  void note_overtaking(const Sequence& seq);
  bool reads(uint32_t group, uint32_t row, uint32_t position) const;
  Hit find(const Sequence& seq) const;
  std::optional<Hit> find_in_parent(const Sequence& seq) const;
  Hit find_in_index(const Sequence& seq) const;
  bool is_known(uint64_t salt, const std::string& prefix) const;
  /// There is room for it and the watermark, or nothing else runs.
  bool may_come_in(const Sequence& seq, const Hit& hit) const;

  control::SchedulerConfig config_;
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
  std::map<std::pair<SlotId, uint32_t>, SeqId> owners_;  // of each slot in each generation
  struct Tenant {
    int64_t served = 0;
    uint32_t waiting = 0;
  };
  std::map<uint64_t, Tenant> tenants_;
  int64_t served_last_ = 0;  // what the tenant had got that left the queue last
  std::set<SlotId> gone_;    // slots taken back that the executor was not told of
  uint64_t arrivals_ = 0;
  uint64_t first_admissions_ = 0;
  bool batch_open_ = false;         // static batching: more come in
  bool batch_may_be_open_ = false;  // or only the scheduler knows whether

  // Of the plan under way: how much of it is accounted for.
  uint64_t budget_ = 0;
  uint32_t wanted_budget_ = UINT32_MAX;
  uint64_t preempted_ = 0;
  std::set<SeqId> followers_;
  size_t steps_ = 0;
  size_t prompts_ = 0;
  size_t added_ = 0;
  size_t moved_out_ = 0;
  size_t moved_in_ = 0;
  size_t copied_ = 0;
  std::set<std::tuple<SlotId, uint32_t, uint32_t, BlockId>> updates_;  // that there must be

  Counts counts_;
  std::string error_;
};

template <typename... Args>
void NaiveModel::fail(const char* format, const Args&... args) {
  if (error_.empty()) error_ = fmt::format(fmt::runtime(format), args...);
}

}  // namespace quire::test
