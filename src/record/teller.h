#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "record/evictions.h"
#include "record/run_state.h"
#include "record/run_story.h"
#include "record/wait_story.h"

namespace quire::record {

/// Follows a run and writes down what each decision means. A step takes time for those that run and for those
/// of which something is decided; who only waits is looked at when its reason changes.
class Teller final : public RunListener {
 public:
  Teller(RunStory& story, const WhoseLines& whose);

  void before(const RunEvent& event, const RunState& state) override;
  void planned(const RunState& state) override;
  void end();

 private:
  /// What is under way with a sequence, not yet told.
  struct Life {
    size_t index = 0;  // in story_.sequences
    bool told = false;
    bool has_run = false;
    // While it runs: what it does, since when.
    Phase doing = Phase::kQueued;
    uint64_t since = 0;  // step; 0: nothing
    uint64_t until = 0;
    uint64_t tokens = 0;       // computed meanwhile
    uint64_t position = 0;     // of the first of them
    uint64_t sampled = 0;      // tokens, meanwhile
    bool first_token = false;  // sampled meanwhile, in one of these steps
    // While it waits: for what, since when.
    WaitSpan waits;
    Nanos waits_since = 0;
    Precedence precedence;        // of who is first in line, as last told
    size_t admissions = 0;        // of others, before it arrived
    std::vector<WaitSpan> spans;  // before it, if its lines are told
    // Of the admission or preemption under way.
    uint32_t hit = 0;       // tokens
    uint32_t moved_in = 0;  // blocks
    uint32_t given_up = 0;  // tokens, by the last preemption
    Nanos preempted_at = 0;
    PreemptionStory preempted;  // the last
  };
  /// A preemption of which the line is told when it is known what becomes of the blocks.
  struct Victim {
    SeqId id = 0;
    std::string text;  // so far
    uint32_t tokens = 0;
    uint32_t blocks = 0;
    uint32_t still_held = 0;  // of them, by others
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
  /// Its wait for this reason was over with step `last`.
  void end_wait(Life& life, uint64_t last);
  /// Its own standing is another, so another sentence says why it waits.
  void compare_with_first(Life& life, const control::Cause& cause);
  void note_short();
  Overtaken overtaken(const Life& life) const;
  void count_overtaken();
  /// Tells what went on until now, and that it does no more.
  void flush(Life& life);
  void flush_wait(Life& life, uint64_t last);
  std::string doing_text(const Life& life);

  RunStory& story_;
  const WhoseLines& whose_;
  uint64_t step_ = 0;
  Nanos now_ = 0;  // of the last plan or result
  std::optional<Nanos> started_;
  std::unordered_map<SeqId, Life> lives_;
  std::optional<Life> added_;
  std::optional<Victim> victim_;
  bool stop_string_ = false;  // of the abort under way
  bool restoring_ = false;    // the prefix cache
  bool resetting_ = false;    // the same
  bool preempted_ = false;    // in this step
  EvictionBook evictions_;
  TenantNames tenants_;
  Tally tally_;
  // What the scheduler told last:
  control::Standing first_;
  uint64_t first_tenant_ = 0;
  std::optional<control::Cause> short_;  // in this step
  std::optional<control::Cause> victim_cause_;
  /// First admissions, in order, and who was waiting no more before it was admitted.
  struct Admission {
    size_t index = 0;  // in story_.sequences
    control::Standing by;
    bool admitted = true;
  };
  std::vector<Admission> admissions_;
  size_t told_waiting_ = 0;  // lives
  std::vector<SeqId> told_running_;
  size_t splits_ = 0;                          // of waits, because another reason came first in line
  std::unordered_set<SeqId> told_for_parent_;  // wait for their parent
};

}  // namespace quire::record
