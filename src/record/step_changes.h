#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "record/cause_sentences.h"
#include "record/follow_run.h"
#include "record/seq_map.h"
#include "record/timeline_parts.h"

namespace quire::record {

/// Translates the events of a run into what is drawn of it: changes of the pools, decisions worth a line, and
/// the state of each sequence in each step. Sequences are told by LiveSequence::index. Blocks are told as
/// they change, so those that change after a plan was told belong to the picture of the next step.
class StepChanges : public RunListener {
 public:
  /// The sequences of a state from which the run is followed on, in the order of their indices.
  void begin_with(const LiveSequence& seq, uint64_t tenant);

  void before(const RunEvent& event, const RunState& state) final;
  void after(const RunEvent& event, const RunState& state) final;
  void planned(const RunState& state) final;

 protected:
  /// The numbers of a step while it computes.
  struct StepNumbers {
    uint32_t running = 0;
    uint32_t waiting = 0;
    uint32_t prefill_tokens = 0;
    uint32_t decode_tokens = 0;
    uint32_t held = 0;    // blocks
    uint32_t shared = 0;  // of these, blocks held by two or more tables
    uint32_t host = 0;    // blocks of the host pool
  };

  /// Whether decided(), looks() and plan_is_told() are to be called now; they take work.
  virtual bool watches() const { return true; }
  virtual void added(const RunAdd& add, size_t index) = 0;
  virtual void begins(const RunPlan& plan, const RunState& state) = 0;
  virtual void ended(const RunCommit& commit) = 0;
  virtual void changes(const Change& change) = 0;       // of the pool
  virtual void changes_host(const Change& change) = 0;  // of the host pool
  virtual void cached_before(uint32_t block) = 0;       // a part of the log begins, and the block is cached
  /// `seq`: null if it is about none, or none that is there.
  virtual void decided(const Event& event, const LiveSequence* seq) = 0;
  /// For each sequence, once its part in the plan is known; then plan_is_told() is called.
  virtual void looks(const LiveSequence& seq, const Look& look) = 0;
  virtual void plan_is_told(const RunState& state, const StepNumbers& numbers) = 0;

  CauseSentences causes_;
  uint32_t shared_ = 0;  // blocks that two or more tables hold

 private:
  void decide(const control::Decision& decision, const RunState& state);
  void change_block(const control::Decision& decision, const RunState& state);
  void release(const control::Decision& decision, const RunState& state);
  void free_host(const LiveSequence* seq);
  Look look_of(const LiveSequence& seq, const LiveSequence* first, const RunState& state);

  size_t num_added_ = 0;
  size_t host_before_ = 0;  // blocks of the host pool that the decision's sequence had
  SeqMap<std::unordered_map<SeqId, size_t>> index_of_;
  std::optional<control::Cause> victim_;  // of the next preemption
};

}  // namespace quire::record
