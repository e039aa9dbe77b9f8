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

// What one run of a control plane was told and what it decided, in a file: enough to explain every decision
// and to make the run again.
//
// A file is one line of JSON (the format's number, the scheduler's configuration), then blocks of records
// (run_format.h), each block with its checksums and with an index of the sequences that come and end in it. A
// record is a byte that says its kind and numbers (LEB128, signed ones zigzag). Inputs are everything that
// Scheduler was called with: add, abort, budget, plan, commit, reset, restore. Decisions and causes are what
// it told in between; a run is made again from its inputs alone. A plan and a result name their step, since
// several may be open. Names and the times of results are in it for who reads it; nothing is decided by them.
// Prompts and sampled tokens are in it: who may not read those may not read the file.
namespace quire::record {

// What a person reads, in the order of the enumerators.
inline constexpr std::string_view kDecisionNames[] = {"add",      "admit",    "hit",     "skip",  "chunk",
                                                      "allocate", "share",    "release", "evict", "copy",
                                                      "preempt",  "swap out", "swap in", "finish"};
inline constexpr std::string_view kWaitNames[] = {"none",       "slots",        "budget",
                                                  "blocks",     "policy order", "parent's prompt",
                                                  "preemption", "batch",        "open step"};
inline constexpr size_t kNumGrounds = static_cast<size_t>(control::Ground::kLeastDone) + 1;

/// Inputs.
struct RunAdd {
  control::SeqSpec spec;  // without its sampling parameters: they decide nothing here
  std::string name;       // what its client knows the request by; may be empty, and any bytes
};
/// The scheduler's answer to the add before it.
struct RunRefusal {
  RequestErrorCode code = RequestErrorCode::kInternal;
  std::string why;
};
struct RunAbort {
  SeqId id = 0;
  bool stop_string = false;  // its text is complete; else its client went away, or all was ended
};
/// Scheduler::set_budget.
struct RunBudget {
  uint32_t tokens = 0;
};
struct RunPlan {
  uint64_t step = 0;
  Nanos now = 0;
};
/// What the executor gave, in the order of StepPlan::seqs: a token, nothing, or that the sequence failed.
struct RunCommit {
  struct Result {
    std::optional<TokenId> token;
    bool failed = false;
  };
  uint64_t step = 0;  // whose results these are; its plan may be some steps ago
  std::vector<Result> results;
  Nanos now = 0;  // on the clock of RunPlan::now; 0: not known
};
struct RunReset {};
/// What the prefix cache began with; of the blocks only whether there is one.
struct RunRestore {
  std::vector<PrefixNode> nodes;
};
/// The end of a run that ended well, with the digest of its decisions.
struct RunEnd {
  uint64_t digest = 0;
};
using RunEvent = std::variant<control::Decision, control::Cause, RunAdd, RunRefusal, RunAbort, RunBudget,
                              RunPlan, RunCommit, RunReset, RunRestore, RunEnd>;
inline bool is_input(const RunEvent& event) {
  return !std::holds_alternative<control::Decision>(event) &&
         !std::holds_alternative<control::Cause>(event) && !std::holds_alternative<RunRefusal>(event);
}

/// Writes a file as the run goes on. Each input is written before the scheduler is called with it, so that
/// its decisions follow it; settle() comes after the call. What is settled is in the file within a second
/// (BlockWriter). Where the disk is full or memory is short, it warns once, and the file ends with a whole
/// block: what is recorded does not notice. One thread.
class RunWriter final : public control::DecisionSink, public control::CauseSink {
 public:
  /// Throws Error as PrivateFile does: only a decision log is overwritten, and only its user may read it; and
  /// as BlockWriter does.
  explicit RunWriter(const std::filesystem::path& path);
  /// Throws what the constructor would. Changes nothing.
  static void check_place(const std::filesystem::path& path);

  /// First. May throw std::bad_alloc.
  void begin(const control::SchedulerConfig& config);
  void add(const control::SeqSpec& spec, std::string_view name = {}) noexcept;
  /// The last add() was not heard: the scheduler has thrown. Before any other call.
  void take_back_add() noexcept;
  void refused(const RequestError& error) noexcept;  // the last add() was
  void abort(SeqId id, bool stop_string = false) noexcept;
  void set_budget(uint32_t tokens) noexcept;
  /// `step`: Scheduler::next_step().
  void plan(uint64_t step, Nanos now) noexcept;
  /// `now`: when the executor was done, 0 if nobody knows.
  void commit(uint64_t step, const control::StepResult& result, Nanos now = 0) noexcept;
  void reset() noexcept;
  void restore(const std::vector<PrefixNode>& nodes) noexcept;
  void take(const control::Decision& decision) noexcept override;
  void take(const control::Cause& cause) noexcept override;
  /// The call is over: what was recorded may be written.
  void settle() noexcept;
  /// Nothing may follow. Returns when all is written.
  void end(uint64_t digest) noexcept;
  /// settle(), and waits until all is written.
  void flush() noexcept;
  bool failed() const { return blocks_.failed(); }

 private:
  template <class Append>
  void record(const Append& append) noexcept;
  void number(uint64_t value);
  void index(char kind, SeqId id);

  BlockWriter blocks_;
  std::string buffer_;     // records that are not settled
  std::string index_;      // of them
  uint64_t planned_ = 0;   // steps
  size_t last_add_ = 0;    // where it begins in the buffer,
  size_t last_entry_ = 0;  // and in the index
};

/// Reads such a file, a block at a time; no number in it makes more be allocated than it is long. A block
/// whose checksum is wrong is an error. Every K/V block that it names is one of the pool.
class RunReader {
 public:
  /// Throws Error, naming file and byte, as next() does: also of a file that is none of these, or of another
  /// version's.
  explicit RunReader(const std::filesystem::path& path);

  const control::SchedulerConfig& config() const { return config_; }
  /// Of the file; no more than so many blocks, slots or tokens can be named in it.
  uint64_t num_bytes() const { return blocks_.num_bytes(); }
  /// nullopt at the end. A file that was cut off in the middle of a block (the program was killed) ends
  /// before it; truncated() tells.
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
  std::string_view data_;  // the records of the block
  size_t at_ = 0;          // in data_
  uint64_t step_ = 0;      // of the last plan
  bool ended_ = false;
  control::SchedulerConfig config_;
};

}  // namespace quire::record
