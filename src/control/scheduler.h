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
/// docs/control-plane.md has the rules, and why every sequence ends.
///
/// Use: add* -> plan -> (executor) -> commit -> plan ... Any number of plans may be open, that is, not yet
/// committed: plan() assumes that they succeed, and commit() applies tokens, ends of sequences and full
/// blocks. Plans are carried out and committed in their order (the rules are in step.h). While has_work() and
/// no plan is open, no plan is empty.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);  // throws Error if the configuration cannot work
  Scheduler(const Scheduler&) = delete;               // its parts refer to one another

  /// Queues a sequence. Errors: kTooLong (with both numbers) if it could never run alone or exceeds
  /// max_model_len; kQueueFull if max_waiting wait and no slot is left, but for forks of what has run;
  /// kInternal if the id is taken or SeqSpec is violated. If it throws std::bad_alloc, nothing has changed.
  Expected<void> add(SeqSpec spec);

  /// Ends a sequence from outside, at any moment; results of open plans for it are dropped. Its slot and
  /// blocks are free when the call returns. Unknown or ended ids are ignored, because the sequence may have
  /// ended at the same time. Allocates nothing.
  void abort(SeqId id);

  /// For an executor that failed as a whole: ends every sequence as abort() does, discards every open plan
  /// and every cached block. Later plans are for an executor without K/V.
  void reset();

  /// Passes on decisions, and causes if not null, in the thread of the calls; first the queue's whole order.
  void listen(DecisionSink* sink, CauseSink* causes = nullptr) {
    log_.listen(sink, causes);
    told_first_ = kNoSeq;
    for (Sequence* seq : waiting_) seq->told_behind = 0;
  }
  uint64_t digest() const { return log_.digest(); }  // of all decisions so far: equal after equal calls

  /// The token budget of the next steps: from max_num_seqs to max_num_batched_tokens (the initial value).
  void set_budget(uint32_t n) {
    budget_ = std::clamp(n, config_.max_num_seqs, config_.max_num_batched_tokens);
  }

  /// Decides what the next step computes. The plan is open until it is committed, unless it is empty(): if
  /// nothing waits or runs, or if all remaining work depends on the results of open plans.
  StepPlan plan();
  /// What the last plan admitted, for the first time or again, in that order; and what it preempted before.
  const std::vector<SeqId>& admitted() const { return admitted_; }
  const std::vector<SeqId>& preempted() const { return preempted_; }
  /// The number of the next plan. While has_work(), plan() uses it up even for an empty plan.
  uint64_t next_step() const { return next_stats_.step + 1; }

  /// What the last commit gave of prompts, before the events that it returned. May be moved from.
  std::vector<PromptEvent>& prompts() { return prompts_; }

  /// Applies the executor's result of the oldest open plan. Returns events in plan order: one for every
  /// sampled token and every end (except ends by abort). Throws Error if it is another plan, or if the result
  /// does not belong to it.
  std::vector<SeqEvent> commit(const StepPlan& plan, StepResult result);

  /// The most tokens, those of the prompt included, of a sequence that runs alone: the model and the pool
  /// hold no more. The last one is sampled and never computed, so it needs no K/V. Any thread.
  uint32_t most_tokens(uint64_t max_tokens = 1) const {
    return static_cast<uint32_t>(
        std::min<uint64_t>(pool_tokens_ + (max_tokens > 0 ? 1 : 0), config_.max_model_len));
  }
  /// The error kTooLong of add() for a sequence of such lengths, if there is one. Any thread.
  Expected<void> check_length(uint64_t prompt, uint64_t max_tokens) const;

  const std::vector<Sequence*>& running() const { return running_; }  // in order of admission
  const std::deque<Sequence*>& waiting() const { return waiting_; }   // in order of arrival
  bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  /// After the last commit; running, waiting and blocks also after an abort, `waiting` also after add().
  const StepStats& stats() const { return stats_; }
  const SchedulerConfig& config() const { return config_; }

  /// Empty if the invariants of docs/control-plane.md hold, else the first broken one. O(blocks + tokens).
  std::string check_invariants() const;

  BlockPool& pool() { return pool_; }  // its cache is restored before the first sequence

 private:
  // The three parts of a plan, in this order. Each subtracts what it uses from `budget`.
  void plan_decodes(StepPlan& plan, uint32_t& budget);
  void plan_prefill(StepPlan& plan, uint32_t& budget);
  void plan_admissions(StepPlan& plan, uint32_t& budget);
  void plan_chunk(StepPlan& plan, Sequence& seq, uint32_t& budget);  // as blocks and budget allow

  /// Puts `count` of its `left` tokens into this step; `ready`: its table needs no change. REQUIRES: room.
  void schedule(StepPlan& plan, Sequence& seq, uint32_t count, uint32_t left, bool ready);
  void plan_prompt(StepPlan& plan, Sequence& seq, uint32_t end);
  void extend_table(StepPlan& plan, SeqStep& step, Sequence& seq);
  void admit(StepPlan& plan, Sequence& seq, uint32_t cached_tokens);  // REQUIRES: find_prefix() set prefix_
  /// Sets prefix_ to the K/V that a sequence may share when it is admitted. Returns how many tokens that is.
  uint32_t find_prefix(const Sequence& seq, const Sequence* parent);
  uint64_t blocks_to_admit(const Sequence& seq, uint32_t cached_tokens) const;  // that must be available
  const Sequence* find_leader(const Sequence& seq, uint32_t cached_tokens) const;
  /// Why the plan that is being made passes over a waiting sequence; kNone: it does not.
  WaitReason passed_over(const Sequence& seq) const;
  Sequence* next_waiting();                // the first by rank that is not passed over; nullptr: all are
  void tell_order(const Sequence& first);  // reports which is first in line, and why the others are not
  Standing standing_of(const Sequence& seq) const;
  Standing worth(const Sequence& victim) const;
  void note_waiting(WaitReason reason, const Sequence* first, uint64_t needed);
  uint64_t room(Sequence& seq, uint64_t wanted);  // tokens for which there is room
  /// Preempts sequences that have no part in this step yet, maybe `seq` itself, in the order of the victim
  /// policy. False if `seq` has no room after all.
  bool make_room(StepPlan& plan, Sequence& seq);
  Sequence* choose_victim(const Sequence& needy) const;
  void preempt(StepPlan& plan, Sequence& seq);   // back to the queue. REQUIRES: it has no part in this step
  void swap_out(StepPlan& plan, Sequence& seq);  // unless the host pool is full, or recomputation quicker
  void swap_in(StepPlan& plan, Sequence& seq);   // the host pool's rows, after those of the prefix index
  void free_host_blocks(Sequence& seq);
  void release(Sequence& seq);  // its slot and blocks; the caller removes it from running_
  void finish(Sequence& seq, FinishReason reason);

  const Sequence* fork_parent(const Sequence& seq) const;  // whose blocks it may share; nullptr: none

  Sequence* find(const SeqStep& step) const;
  void take_prompts(const StepPlan& plan, StepResult& result);
  void take_result(const SeqStep& step, SeqResult&& got, std::vector<SeqEvent>& events);
  void publish_full_blocks(Sequence& seq, uint32_t first_position);
  void take_token(Sequence& seq, SampledToken&& token, SeqEvent& event);
  void describe_state(StepStats& stats) const;
  std::string check_sequence(const Sequence& seq) const;
  std::string check_holders() const;

  friend struct SchedulerVandal;  // a test corrupts the state to see that check_invariants() reports it

  SchedulerConfig config_;
  uint32_t budget_ = 0;       // tokens
  uint32_t watermark_ = 0;    // blocks
  uint64_t pool_tokens_ = 0;  // of a sequence that runs alone, as far as it needs K/V
  bool windowed_ = false;     // whether a K/V group has a window
  BlockPool pool_;
  DecisionLog& log_;
  std::unique_ptr<SchedulingPolicy> policy_;
  std::unordered_map<SeqId, std::unique_ptr<Sequence>> sequences_;  // owns all; never iterated
  std::deque<Sequence*> waiting_;                                   // in order of arrival
  std::vector<Sequence*> running_;                                  // in order of admission
  std::vector<Sequence*> by_slot_;                                  // nullptr: free
  std::vector<uint32_t> generations_;                               // how often each slot was taken
  std::vector<SlotId> free_slots_;                                  // a stack
  std::vector<Sequence*> awaited_;           // preempted while steps in flight give them something
  std::vector<PromptEvent> prompts_;         // by the last commit
  std::vector<SeqId> admitted_, preempted_;  // by the last plan
  std::vector<SlotId> removed_;              // freed since the last non-empty plan
  Prefix prefix_;                            // scratch of plan_admissions
  std::vector<BlockId> free_host_blocks_;    // a stack
  std::vector<Sequence*> order_;             // scratch of plan_decodes
  SeqId told_first_ = kNoSeq;                // the first in line, as last reported
  std::pair<WaitReason, SeqId> noted_ = {};  // what note_waiting() noted of all; kNone: of each its own
  uint32_t followers_ = 0;                   // passed over in this plan: another computes their prefix
  bool batch_open_ = true;                   // static batching: sequences are still admitted
  uint64_t arrivals_ = 0, first_admissions_ = 0;
  uint64_t slots_unused_ = 0;  // positions in the tables of running sequences without K/V, a K/V group
  StepStats stats_;
  std::deque<StepStats> open_;  // of each open plan, the oldest first
  StepStats next_stats_;        // of the plan that is being made
};

}  // namespace quire::control
