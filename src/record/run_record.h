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
#include "record/block_writer.h"
#include "record/log_files.h"
#include "record/prefix_snapshot.h"

// The inputs and decisions of one run of a control plane, in a file: enough to explain every decision and to
// replay the run.
//
// A file has one line of JSON (the format's number, the scheduler's configuration, and "warning" if the times
// of the steps may not be what they seem), then log blocks of
// records (run_format.h). Each log block has checksums and an index of the sequences that arrive and end in
// it. A record is a byte for its kind, and numbers (LEB128, signed ones with zigzag). Inputs are the calls of
// Scheduler: add, abort, budget, plan, commit, reset, restore. Decisions and causes are what the scheduler
// reported in between; a run is replayed from its inputs alone. A plan and a result name their step, since
// several steps may be in flight. Names and the times of results are there only for readers; they decide
// nothing. The file contains prompts and sampled tokens, so only users who may read those may read it.
//
// A log with a limit is written in parts, each a file of this format (log_files.h), so that the oldest can be
// deleted. A part begins while the scheduler has no work, with what is then in the prefix index; so a run can
// be explained from any part on, but replayed only from its beginning.
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
/// The prefix index at the beginning of a part, with its blocks.
struct RunCached {
  std::vector<PrefixNode> nodes;
};
/// The end of a part that another follows, with the digest of all decisions up to here, those of former parts
/// included.
struct RunPartEnd {
  uint64_t digest = 0;
};
using RunEvent = std::variant<control::Decision, control::Cause, RunAdd, RunRefusal, RunAbort, RunBudget,
                              RunPlan, RunCommit, RunReset, RunRestore, RunEnd, RunCached, RunPartEnd>;
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
  /// `most_bytes`: the log is written in parts, so that they need no more together, if there are moments
  /// without work; 0: it is one file.
  /// `warning`: why the times may not be what they seem; empty: they are.
  explicit RunWriter(const std::filesystem::path& path, uint64_t most_bytes = 0,
                     std::string_view warning = {});
  /// Throws if the constructor would. Changes nothing.
  static void check_place(const std::filesystem::path& path, uint64_t most_bytes = 0);

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
  /// Whether the present part is so long that the next one should begin, once the scheduler has no work and
  /// no open plan.
  bool wants_part() const { return most_bytes_ > 0 && part_bytes_ >= most_bytes_ / 4 && !failed(); }
  /// Begins a part. REQUIRES: everything is settled, and `scheduler` has no work and no open plan. If memory
  /// is short, or the part before has only just begun, no part begins.
  void begin_part(control::Scheduler& scheduler) noexcept;
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
  std::string buffer_;    // records that are not settled
  std::string index_;     // their index entries
  uint64_t planned_ = 0;  // steps
  uint64_t most_bytes_;
  uint64_t part_bytes_ = 0;  // of the present part, without the state at its beginning
  uint64_t part_ = 1;
  std::string config_;     // as JSON
  std::string warning_;    // valid UTF-8
  size_t last_add_ = 0;    // where it begins in the buffer,
  size_t last_entry_ = 0;  // and in the index
};

/// Reads such a log, one log block at a time: all parts that are there, or one part by its own name
/// (log_files.h). No number in a file can cause an allocation larger than the file. A log block with a wrong
/// checksum is an error. Every K/V block that a record names is in the pool.
class RunReader {
 public:
  /// Throws Error, naming file and byte, as next() does; also for a file that is not a decision log, or has
  /// another version.
  explicit RunReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const control::SchedulerConfig& config() const { return log_.parts.front().header.config; }
  /// Where the log begins: with which part, after how many planned steps.
  uint64_t first_part() const { return log_.parts.front().header.part; }
  uint64_t steps_before() const { return log_.parts.front().header.steps_before; }
  /// Why the times may not be what they seem; empty: they are.
  const std::string& warning() const { return log_.parts.front().header.warning; }
  /// Whether it is one part of a log that has others.
  bool is_single_part() const { return log_.is_single; }
  /// The size of all files; they cannot name more blocks, slots or tokens than that.
  uint64_t num_bytes() const { return log_.num_bytes(); }
  /// The next event; nullopt at the end. A file that was cut off within a log block (the program was killed)
  /// ends before it; then truncated() is true.
  std::optional<RunEvent> next();
  /// The same into `event`; false at the end.
  bool next(RunEvent& event);
  /// The step of the last plan.
  uint64_t step() const { return step_; }
  bool truncated() const { return blocks().was_cut_off(); }
  /// Whether the last event was the end of a part.
  bool at_part_end() const { return part_ended_; }

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
  RunCached cached();
  PrefixNode node(size_t before, bool names_blocks);
  control::Decision decision(control::DecisionKind kind);
  control::Cause cause(control::CauseKind kind);
  void read_record(RunEvent& event);
  bool next_part();
  BlockReader& blocks() { return log_.parts[part_].blocks; }
  const BlockReader& blocks() const { return log_.parts[part_].blocks; }
  Error broken(std::string_view what) const;

  std::filesystem::path path_;
  OpenLog log_;
  size_t part_ = 0;        // its index in log_
  std::string_view data_;  // the records of the log block
  size_t at_ = 0;          // in data_
  uint64_t step_ = 0;      // of the last plan
  bool begun_ = false;     // a record of this part was read
  bool part_ended_ = false;
  bool ended_ = false;
};

}  // namespace quire::record
