#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "record/evictions.h"
#include "record/follow_run.h"
#include "record/run_story.h"
#include "record/seq_map.h"
#include "record/wait_story.h"

namespace quire::record {

/// Follows a run and writes what each decision means. The work per step is proportional to the running
/// sequences and those with a decision; a sequence that only waits costs time only when its reason changes.
class Teller final : public RunListener {
 public:
  Teller(RunStory& story, const WhoseLines& whose);

  void before(const RunEvent& event, const RunState& state) override;
  void planned(const RunState& state) override;
  void end();

 private:
  /// The current activity of a sequence, which has not been written yet.
  struct Life {
    size_t index = 0;  // in story_.sequences
    bool told = false;
    bool has_run = false;
    // While it runs: its state, and since when.
    Phase doing = Phase::kQueued;
    uint64_t since = 0;  // the step; 0: none
    uint64_t until = 0;
    uint64_t tokens = 0;       // computed since
    uint64_t position = 0;     // position of the first of them
    uint64_t sampled = 0;      // tokens sampled since
    bool first_token = false;  // whether it was sampled in one of these steps
    // While it waits: the reason, and since when.
    WaitSpan waits;
    Nanos waits_since = 0;
    Precedence precedence;  // of the first in line, as last written
    size_t admissions = 0;  // admissions of others before it arrived
    Waits waited;           // earlier waits, if its lines are written
    // Of the admission or preemption in progress.
    uint32_t hit = 0;       // tokens
    uint32_t moved_in = 0;  // blocks
    uint32_t given_up = 0;  // tokens given up by the last preemption
    Nanos preempted_at = 0;
    PreemptionStory preempted;  // the last
  };
  /// A preemption whose line is written once it is known what happens to the blocks.
  struct Victim {
    SeqId id = 0;
    std::string text;  // so far
    uint32_t tokens = 0;
    uint32_t blocks = 0;
    uint32_t still_held = 0;  // of these blocks, those that other tables hold
    bool swapped = false;
    std::optional<control::Cause> not_moved;
  };

  SequenceStory& of(const Life& life) { return story_.sequences[life.index]; }
  void say(const Life& life, uint64_t from, uint64_t to, std::string text);
  void say(const Life& life, std::string text) { say(life, step_, step_, std::move(text)); }

  void tell_add(const RunAdd& add, const RunState& state);
  void tell_cause(const control::Cause& cause);
  void tell_refusal(const RunRefusal& refusal);
  void tell_commit(const RunCommit& commit, const RunState& state);
  void tell_decision(const control::Decision& decision, const RunState& state);
  void tell_admit(Life& life, const control::Decision& decision, const LiveSequence& seq);
  void tell_preempt(Life& life, const control::Decision& decision, const RunState& state);
  void tell_finish(Life& life, const control::Decision& decision);
  bool follow_victim(const RunEvent& event, const RunState& state);
  void tell_victim();
  void keep_if_bad(const PreemptionStory& preemption);

  void begin_wait(Life& life, const control::Decision& decision, const LiveSequence& seq);
  /// Its wait for this reason ended with step `last`.
  void end_wait(Life& life, uint64_t last);
  /// Its own standing has changed, so a different sentence says why it waits.
  void compare_with_first(Life& life, const control::Cause& cause);
  void note_short();
  Overtaken overtaken(const Life& life) const;
  void count_overtaken();
  /// Writes the activity up to now and ends it.
  void flush(Life& life);
  void flush_wait(Life& life, uint64_t last);
  std::string doing_text(const Life& life);

  RunStory& story_;
  const WhoseLines& whose_;
  uint64_t step_ = 0;
  Nanos now_ = 0;  // of the last plan or result
  std::optional<Nanos> started_;
  SeqMap<std::unordered_map<SeqId, Life>> lives_;
  std::optional<Life> added_;
  std::optional<Victim> victim_;
  bool stop_string_ = false;  // of the abort in progress
  bool restoring_ = false;    // the prefix cache is being restored
  bool resetting_ = false;    // or reset
  bool preempted_ = false;    // in this step
  EvictionBook evictions_;
  TenantNames tenants_;
  Tally tally_;
  // As the scheduler reported last:
  control::Standing first_;
  uint64_t first_tenant_ = 0;
  std::optional<control::Cause> short_;  // in this step
  std::optional<control::Cause> victim_cause_;
  /// First admissions, in order; and sequences that stopped waiting before they were admitted.
  struct Admission {
    size_t index = 0;  // in story_.sequences
    control::Standing by;
    bool admitted = true;
  };
  std::vector<Admission> admissions_;
  uint64_t followed_ = 0;  // the last step in which a slot was kept for a sequence with reason kPrefix,
  uint64_t followed_before_ = 0;  // and the one before
  size_t told_waiting_ = 0;       // lives whose lines are written and that wait
  std::vector<SeqId> told_running_;
  size_t splits_ = 0;  // waits that were split because the ground of the first in line changed
  std::unordered_set<SeqId> told_for_parent_;  // sequences that wait for their parent
};

}  // namespace quire::record
