#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "control/cause.h"
#include "control/scheduler.h"
#include "record/block_reader.h"
#include "record/block_writer.h"
#include "record/prefix_snapshot.h"

// The inputs and decisions of one run of a control plane, in a file: enough to explain every decision and to
// replay the run.
//
// A file has one line of JSON (the format's number, the scheduler's configuration), then log blocks of
// records (run_format.h). Each log block has checksums and an index of the sequences that arrive and end in
// it. A record is a byte for its kind, and numbers (LEB128, signed ones with zigzag). Inputs are the calls of
// Scheduler: add, abort, budget, plan, commit, reset, restore. Decisions and causes are what the scheduler
// reported in between; a run is replayed from its inputs alone. A plan and a result name their step, since
// several steps may be in flight. Names and the times of results are there only for readers; they decide
// nothing. The file contains prompts and sampled tokens, so only users who may read those may read it.
namespace quire::record {

// Names for display, in the order of the enumerators.
inline constexpr std::string_view kDecisionNames[] = {"add",      "admit",    "hit",     "skip",  "chunk",
                                                      "allocate", "share",    "release", "evict", "copy",
                                                      "preempt",  "swap out", "swap in", "finish"};
inline constexpr std::string_view kWaitNames[] = {"none",         "slots",           "budget",     "blocks",
                                                  "policy order", "parent's prompt", "preemption", "batch",
                                                  "open step",    "prefix"};
inline constexpr size_t kNumGrounds = static_cast<size_t>(control::Ground::kLeastDone) + 1;

/// Inputs.
struct RunAdd {
  control::SeqSpec spec;  // without its sampling parameters, which affect no decision
  std::string name;       // the id that the client knows; any bytes, may be empty
};
/// The scheduler's answer to the add before it.
struct RunRefusal {
  RequestErrorCode code = RequestErrorCode::kInternal;
  std::string why;
};
struct RunAbort {
  SeqId id = 0;
  bool stop_string =
      false;  // a stop string completed its text; else the client disconnected, or everything was ended
};
/// Scheduler::set_budget.
struct RunBudget {
  uint32_t tokens = 0;
};
struct RunPlan {
  uint64_t step = 0;
  Nanos now = 0;
};
/// The executor's result, in the order of StepPlan::seqs: a token, nothing, or that the sequence failed.
/// What steps yield of prompts is not recorded.
struct RunCommit {
  struct Result {
    std::optional<TokenId> token;
    bool failed = false;
  };
  uint64_t step = 0;  // the step of these results; later steps may have been planned since
  std::vector<Result> results;
  Nanos now = 0;  // on the clock of RunPlan::now; 0: unknown
};
struct RunReset {};
/// The initial contents of the prefix cache; for blocks, only whether there is one.
struct RunRestore {
  std::vector<PrefixNode> nodes;
};
/// The regular end of a run, with the digest of its decisions.
struct RunEnd {
  uint64_t digest = 0;
};
using RunEvent = std::variant<control::Decision, control::Cause, RunAdd, RunRefusal, RunAbort, RunBudget,
                              RunPlan, RunCommit, RunReset, RunRestore, RunEnd>;
inline bool is_input(const RunEvent& event) {
  return !std::holds_alternative<control::Decision>(event) &&
         !std::holds_alternative<control::Cause>(event) && !std::holds_alternative<RunRefusal>(event);
}

/// Writes a file during the run. Each input is recorded before the call of the scheduler, so that the
/// decisions follow it; call settle() after that call. Settled records are in the file within a second
/// (BlockWriter). If the disk is full or memory is short, it warns once and the file ends with a whole log
/// block; the recorded run is not affected. For one thread.
class RunWriter final : public control::DecisionSink, public control::CauseSink {
 public:
  /// Throws Error as PrivateFile does: only a decision log is overwritten, and only its user may read it; and
  /// as BlockWriter does.
  explicit RunWriter(const std::filesystem::path& path);
  /// Throws if the constructor would. Changes nothing.
  static void check_place(const std::filesystem::path& path);

  /// Call first. May throw std::bad_alloc.
  void begin(const control::SchedulerConfig& config);
  void add(const control::SeqSpec& spec, std::string_view name = {}) noexcept;
  /// Removes the last add(): the scheduler has thrown. Call it before any other call.
  void take_back_add() noexcept;
  void refused(const RequestError& error) noexcept;  // the last add() was refused
  void abort(SeqId id, bool stop_string = false) noexcept;
  void set_budget(uint32_t tokens) noexcept;
  /// `step`: Scheduler::next_step().
  void plan(uint64_t step, Nanos now) noexcept;
  /// `now`: when the executor was done; 0: unknown.
  void commit(uint64_t step, const control::StepResult& result, Nanos now = 0) noexcept;
  void reset() noexcept;
  void restore(const std::vector<PrefixNode>& nodes) noexcept;
  void take(const control::Decision& decision) noexcept override;
  void take(const control::Cause& cause) noexcept override;
  /// The scheduler's call has returned: its records may be written.
  void settle() noexcept;
  /// The last call. Returns when everything is written.
  void end(uint64_t digest) noexcept;
  /// Calls settle() and waits until everything is written.
  void flush() noexcept;
  bool failed() const { return blocks_.failed(); }

 private:
  template <class Append>
  void record(const Append& append) noexcept;
  void number(uint64_t value);
  void index(char kind, SeqId id);

  BlockWriter blocks_;
  std::string buffer_;     // records that are not settled
  std::string index_;      // their index entries
  uint64_t planned_ = 0;   // steps
  size_t last_add_ = 0;    // where it begins in the buffer,
  size_t last_entry_ = 0;  // and in the index
};

/// Reads such a file, one log block at a time. No number in the file can cause an allocation larger than the
/// file. A log block with a wrong checksum is an error. Every K/V block that a record names is in the pool.
class RunReader {
 public:
  /// Throws Error, naming file and byte, as next() does; also for a file that is not a decision log, or has
  /// another version.
  explicit RunReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const control::SchedulerConfig& config() const { return config_; }
  /// The size of the file; it cannot name more blocks, slots or tokens than that.
  uint64_t num_bytes() const { return blocks_.num_bytes(); }
  /// The next event; nullopt at the end. A file that was cut off within a log block (the program was killed)
  /// ends before it; then truncated() is true.
  std::optional<RunEvent> next();
  /// The same into `event`; false at the end.
  bool next(RunEvent& event);
  bool truncated() const { return blocks_.was_cut_off(); }

 private:
  uint64_t number();
  int64_t signed_number();
  template <typename T>
  T bounded(uint64_t most);
  std::vector<TokenId> tokens();
  std::string text();
  RunAdd add();
  RunAdd add_with_wants();
  RunRefusal refusal();
  RunPlan plan();
  RunCommit commit();
  RunRestore restore();
  control::Decision decision(control::DecisionKind kind);
  control::Cause cause(control::CauseKind kind);
  void read_record(RunEvent& event);
  Error broken(std::string_view what) const;

  std::filesystem::path path_;
  BlockReader blocks_;
  std::string_view data_;  // the records of the log block
  size_t at_ = 0;          // in data_
  uint64_t step_ = 0;      // of the last plan
  bool ended_ = false;
  control::SchedulerConfig config_;
};

}  // namespace quire::record
