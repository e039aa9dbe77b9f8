#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "control/scheduler.h"
#include "tests/control/property/naive_model.h"
#include "tests/control/property/oracle_executor.h"
#include "tests/control/property/story.h"

namespace quire::test {

/// What stories exercised, so that a test can tell whether it tested anything.
struct Coverage {
  uint64_t stories = 0;
  uint64_t steps = 0;
  uint64_t preempting_steps = 0;
  uint64_t aborts = 0;         // of sequences that were there
  uint64_t aborts_inside = 0;  // of these, between plan and commit
  uint64_t stops = 0;          // ends from outside after a token, as by a stop string
  uint64_t failures = 0;       // of sequences in the executor
  uint64_t refusals = 0;
  uint64_t losses = 0;        // of the executor
  uint64_t late_tokens = 0;   // decoded before they were known
  uint64_t late_results = 0;  // of sequences that had been preempted or had ended
  uint64_t rows = 0;          // of prompts
  uint64_t pooled = 0;        // states
  uint64_t in_pieces = 0;     // prompts whose rows came from more than one step
  uint64_t tokenless = 0;     // ends of sequences that wanted no token
  uint64_t waits = 0;         // plans that were empty until an open step was committed
  NaiveModel::Counts model;
  uint64_t steps_by_batching[std::size(control::kBatchingNames)] = {};
  uint64_t admissions_by_scheduling[std::size(control::kSchedulingNames)] = {};
  uint64_t overtakes_by_scheduling[std::size(control::kSchedulingNames)] = {};
  uint64_t preemptions_by_victim[std::size(control::kVictimNames)] = {};
  uint64_t chosen_by_victim[std::size(control::kVictimNames)] = {};  // another than the last admitted
  uint64_t preemptions_by_way[std::size(control::kPreemptionNames)] = {};
  uint64_t swaps_by_way[std::size(control::kPreemptionNames)] = {};  // blocks moved out
  uint64_t evictions_by_policy[std::size(control::kEvictionNames)] = {};
};
std::string to_string(const Coverage& coverage);

/// Makes a story come true. After each operation the invariants hold (Scheduler::check_invariants), the naive
/// pool agrees with the plans and the counts, and every place that a sequence reads holds its K/V; every
/// sequence gives what it gives alone, ends once, and nothing is left at the end.
class World {
 public:
  explicit World(const Story& story);

  /// Empty, or the first thing that was wrong.
  std::string run();

  uint64_t digest() const { return executor_.digest(); }  // of all plans
  void add_to(Coverage& coverage) const;

 private:
  struct Record {
    control::SeqSpec spec;
    uint32_t stop_after = 0;
    std::vector<TokenId> output;
    uint32_t rows = 0;  // of its prompt, that came
    bool pooled = false;
    bool ended = false;
  };

  void operate(const Operation& operation);
  void add(const Operation& operation);
  void add(control::SeqSpec spec, uint32_t stop_after);
  void abort(SeqId id);
  void open(uint32_t milliseconds, uint32_t fails);
  void close();
  void lose_executor();
  void take(const control::SeqEvent& event, std::vector<SeqId>& stops);
  void take(const control::PromptEvent& event);
  bool has_its_prompt(const Record& record) const;
  void drain();
  void finish_all();
  void check();
  void check_counts();
  void check_reasons();
  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }

  const Story& story_;
  const control::SchedulerConfig& config_;
  control::Scheduler scheduler_;
  OracleExecutor executor_;
  NaiveModel model_;
  std::map<SeqId, Record> records_;  // of all that were taken
  struct OpenStep {
    control::StepPlan plan;
    control::StepResult result;
    uint64_t preempted = 0;
  };
  std::deque<OpenStep> open_;
  Nanos now_ = 0;
  Coverage coverage_;
  std::string error_;
};

}  // namespace quire::test
