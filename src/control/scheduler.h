#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "control/config.h"
#include "control/decision_log.h"
#include "control/kv/block_pool.h"
#include "control/policy/policy.h"
#include "control/request.h"
#include "control/sequence.h"
#include "control/stats.h"
#include "control/step.h"

namespace quire::control {

/// Decides what every step computes: continuous batching with chunked prefill under a token budget over a
/// paged, prefix-cached block pool. Pure: no clock, no I/O; same inputs, same plans. Not thread-safe.
///
/// A sequence has `computed` and `total` tokens; each step lets `computed` chase `total`. Prefill, decode,
/// recomputation after a preemption and prefix hits are the same case. Yu et al. 2022 (Orca), Kwon et al.
/// 2023 (PagedAttention), Agrawal et al. 2024 (Sarathi-Serve: decodes first, prefill in the budget left).
/// docs/control-plane.md tells the rules and why they end.
///
/// Use: add* -> plan -> (executor) -> commit -> plan ... Any number of plans may be open, that is not
/// committed: plan() takes for granted that they succeed, commit() takes in tokens, ends and full blocks.
/// Plans are carried out and committed in their order (the rules are in step.h). While has_work() and no plan
/// is open, no plan is empty.
class Scheduler {
 public:
  /// Throws Error if the configuration cannot work.
  explicit Scheduler(const SchedulerConfig& config);
  Scheduler(const Scheduler&) = delete;  // its parts refer to one another

  /// Queues a sequence. Refused: kTooLong (with both numbers) if it could never run alone in the pool or
  /// exceeds max_model_len, kQueueFull if max_waiting wait already, kInternal if the id is taken or the
  /// sequence breaks SeqSpec's promises. Where it throws std::bad_alloc, nothing has changed.
  Expected<void> add(SeqSpec spec);

  /// Ends a sequence from outside, at any moment; what open plans compute for it is dropped. Its blocks are
  /// back when the call returns. Unknown or ended ids are ignored: the end may have crossed the call.
  /// Allocates nothing.
  void abort(SeqId id);

  /// The executor has failed as a whole: ends every sequence as abort() does, voids every open plan, forgets
  /// every cached block. Plans then go on, for an executor without K/V.
  void reset();

  /// Hands every decision from now on to `sink` (nullptr: to nobody), and what they went by to `causes`, in
  /// the thread of these calls.
  void listen(DecisionSink* sink, CauseSink* causes = nullptr) { log_.listen(sink, causes); }
  /// Of all decisions so far: equal after equal calls.
  uint64_t digest() const { return log_.digest(); }

  /// The token budget of the next steps, from max_num_seqs to max_num_batched_tokens, which it is at first.
  void set_budget(uint32_t n) {
    budget_ = std::clamp(n, config_.max_num_seqs, config_.max_num_batched_tokens);
  }

  /// What the next step computes. It is open until it is committed, unless it is empty(): if nothing waits or
  /// runs, or if all there is to do depends on what open plans give.
  StepPlan plan();
  /// The sequences that the last plan admitted, for the first time or again, in that order; and those that it
  /// preempted before.
  const std::vector<SeqId>& admitted() const { return admitted_; }
  const std::vector<SeqId>& preempted() const { return preempted_; }
  /// The number of the next plan. plan() takes it, even for one that is empty, while has_work().
  uint64_t next_step() const { return next_stats_.step + 1; }
  /// Plans that are not committed.
  uint32_t num_open() const { return static_cast<uint32_t>(open_.size()); }

  /// Takes in what the executor made of the oldest open plan. Events in plan order. One for every sampled
  /// token and every end (except ends by abort). Throws Error if the plan is another, or the result not one
  /// of it.
  std::vector<SeqEvent> commit(const StepPlan& plan, StepResult result);

  bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  /// After the last commit; what is a state and no count (running, waiting, blocks) also after an abort.
  const StepStats& stats() const { return stats_; }
  const SchedulerConfig& config() const { return config_; }

  /// Empty if every invariant of docs/control-plane.md holds, else the first broken. O(blocks + tokens).
  std::string check_invariants() const;

  void reset_prefix_cache() { pool_.drop_cached(); }  // all blocks that nobody holds
  BlockPool& pool() { return pool_; }  // to save or restore the cache, before all sequences or after them

 private:
  // The three parts of a plan, in this order. Each takes what it uses from `budget`.
  void plan_decodes(StepPlan& plan, uint32_t& budget);
  void plan_prefill(StepPlan& plan, uint32_t& budget);
  void plan_admissions(StepPlan& plan, uint32_t& budget);
  void plan_chunk(StepPlan& plan, Sequence& seq, uint32_t& budget);  // as blocks and budget allow

  /// `count` of the `left` tokens of it in this step; `ready`: its table is. REQUIRES: the pool has room for
  /// them.
  void schedule(StepPlan& plan, Sequence& seq, uint32_t count, uint32_t left, bool ready);
  void extend_table(StepPlan& plan, SeqStep& step, Sequence& seq);
  void admit(StepPlan& plan, Sequence& seq, uint32_t cached_tokens);  // REQUIRES: find_prefix() set prefix_
  /// The K/V that a sequence may share when it comes in, into prefix_. Returns how many tokens that is.
  uint32_t find_prefix(const Sequence& seq, const Sequence* parent);
  uint64_t blocks_to_admit(const Sequence& seq, uint32_t cached_tokens) const;  // that must be available
  /// The first by rank that may come in and its place in waiting_; nullptr if all wait for their parents.
  Sequence* next_waiting(size_t& index);
  void tell_order(const Sequence& first);  // who is first in line, and why the others are not
  Standing standing_of(const Sequence& seq) const;
  void tell_victim(const Sequence& victim, const Sequence& needy);
  void note_waiting(WaitReason reason, const Sequence* first, uint64_t needed);
  uint64_t room(Sequence& seq, uint64_t wanted);  // tokens that it can write
  /// Preempts, as the policy says, those without a part in this step yet, maybe `seq`. False: it has no room.
  bool make_room(StepPlan& plan, Sequence& seq);
  Sequence* choose_victim(const Sequence& needy) const;
  void preempt(StepPlan& plan, Sequence& seq);   // back to the queue. REQUIRES: without a part in this step
  void swap_out(StepPlan& plan, Sequence& seq);  // unless the host is full or (kAuto) computing is quicker
  void swap_in(StepPlan& plan, Sequence& seq);   // the host pool's rows, after those of the prefix index
  void free_host_blocks(Sequence& seq);
  void release(Sequence& seq);  // of slot and blocks; the caller takes it out of running_
  void finish(Sequence& seq, FinishReason reason);

  /// The sequence whose blocks `seq` may share once it has computed its prompt, nullptr if none.
  const Sequence* fork_parent(const Sequence& seq) const;
  bool waits_for_parent(const Sequence& seq) const;  // until that one has computed them

  Sequence* find_awaited(SlotId slot, uint32_t generation) const;
  void take_result(const SeqStep& step, SeqResult&& got, std::vector<SeqEvent>& events);
  void publish_full_blocks(Sequence& seq, uint32_t first_position);
  void take_token(Sequence& seq, SampledToken&& token, SeqEvent& event);
  void append_awaited(Sequence& seq, TokenId token);
  void describe_state(StepStats& stats) const;
  std::string check_sequence(const Sequence& seq) const;
  std::string check_holders() const;

  friend struct SchedulerVandal;  // a test breaks things, to see that check_invariants() tells

  SchedulerConfig config_;
  uint32_t budget_ = 0;     // tokens
  uint32_t watermark_ = 0;  // blocks
  uint64_t longest_ = 0;    // tokens with K/V that the pool holds for one sequence
  bool windowed_ = false;   // a K/V group has a window
  BlockPool pool_;
  DecisionLog& log_;
  std::unique_ptr<SchedulingPolicy> policy_;
  std::unordered_map<SeqId, Sequence> sequences_;  // owns all; never iterated
  std::deque<Sequence*> waiting_;                  // in order of arrival
  std::vector<Sequence*> running_;                 // in order of admission
  std::vector<Sequence*> by_slot_;                 // nullptr: free
  std::vector<uint32_t> generations_;              // how often each slot was taken
  std::vector<SlotId> free_slots_;                 // a stack
  std::vector<Sequence*> awaited_;                 // preempted while open steps sample a token for them
  std::vector<SeqId> admitted_;                    // by the last plan
  std::vector<SeqId> preempted_;                   // likewise
  std::vector<SlotId> removed_;                    // freed since the last plan that was not empty
  Prefix prefix_;                                  // scratch of plan_admissions
  std::vector<BlockId> free_host_blocks_;          // a stack
  std::vector<Sequence*> order_;                   // scratch of plan_decodes
  SeqId told_first_ = kNoSeq;                      // in line, by the last cause
  bool batch_open_ = true;                         // static batching: sequences still come in
  uint64_t arrivals_ = 0;
  uint64_t first_admissions_ = 0;
  StepStats stats_;
  std::deque<StepStats> open_;  // of each open plan, the oldest first
  StepStats next_stats_;        // of the plan that is made
};

}  // namespace quire::control
