#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/private_file.h"
#include "control/scheduler.h"
#include "record/prefix_snapshot.h"

// What one run of a control plane was told and what it decided, in a file: enough to explain every decision
// and to make the run again.
//
// A file is one line of JSON (the format's number, the scheduler's configuration), then records, each a byte
// that says its kind and numbers (LEB128, signed ones zigzag). Inputs are everything that Scheduler was
// called with: add, abort, budget, plan, commit, reset, restore. Decisions are what it told its DecisionSink
// in between; a run is made again from its inputs alone. Names and the times of results are in it for who
// reads it; nothing is decided by them. Prompts and sampled tokens are in it: who may not read those may not
// read the file.
namespace quire {

// What a person reads, in the order of the enumerators.
inline constexpr std::string_view kDecisionNames[] = {"add",      "admit",    "hit",     "skip",  "chunk",
                                                      "allocate", "share",    "release", "evict", "copy",
                                                      "preempt",  "swap out", "swap in", "finish"};
inline constexpr std::string_view kWaitNames[] = {"none",       "slots",        "budget",
                                                  "blocks",     "policy order", "parent's prompt",
                                                  "preemption", "batch",        "open step"};

/// Inputs.
struct RunAdd {
  SeqSpec spec;      // without its sampling parameters: they decide nothing here
  std::string name;  // what its client knows the request by; may be empty, and any bytes
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
  Nanos now = 0;
};
/// What the executor gave, in the order of StepPlan::seqs: a token, nothing, or that the sequence failed.
struct RunCommit {
  struct Result {
    std::optional<TokenId> token;
    bool failed = false;
  };
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
using RunEvent =
    std::variant<RunAdd, RunAbort, RunBudget, RunPlan, RunCommit, RunReset, RunRestore, RunEnd, Decision>;

/// Writes a file as the run goes on. Each input is written before the scheduler is called with it, so that
/// its decisions follow it. Where the disk is full or memory is short, it warns once, and the file ends with
/// the last whole record: what is recorded does not notice. One thread.
class RunWriter final : public DecisionSink {
 public:
  /// Throws Error as PrivateFile does: only a decision log is overwritten, and only its user may read it.
  explicit RunWriter(const std::filesystem::path& path);
  /// Throws what the constructor would. Changes nothing.
  static void check_place(const std::filesystem::path& path);

  /// First. May throw std::bad_alloc.
  void begin(const SchedulerConfig& config);
  void add(const SeqSpec& spec, std::string_view name = {}) noexcept;
  /// The last add() was not heard: the scheduler has thrown. Before any other call.
  void take_back_add() noexcept;
  void abort(SeqId id, bool stop_string = false) noexcept;
  void set_budget(uint32_t tokens) noexcept;
  void plan(Nanos now) noexcept;
  /// `now`: when the executor was done, 0 if nobody knows.
  void commit(const StepResult& result, Nanos now = 0) noexcept;
  void reset() noexcept;
  void restore(const std::vector<PrefixNode>& nodes) noexcept;
  void take(const Decision& decision) noexcept override;
  /// Nothing may follow.
  void end(uint64_t digest) noexcept;
  void flush() noexcept;
  bool failed() const { return failed_; }

 private:
  template <class Append>
  void record(const Append& append) noexcept;
  void number(uint64_t value);
  void cut_off() noexcept;

  PrivateFile out_;
  const std::string warning_;  // made while there is memory
  std::string buffer_;
  size_t last_add_ = 0;  // where it begins in the buffer
  bool failed_ = false;
};

/// Reads such a file. Bounded by it: no number in it makes more be allocated than it is long. Every block
/// that it names is one of the pool.
class RunReader {
 public:
  /// Throws Error, naming file and byte, as next() does: also of a file that is none of these, or of another
  /// version's.
  explicit RunReader(const std::filesystem::path& path);

  const SchedulerConfig& config() const { return config_; }
  /// Of the file; no more than so many blocks, slots or tokens can be named in it.
  uint64_t num_bytes() const { return data_.size(); }
  /// nullopt at the end. A file that was cut off in the middle of a record (the program was killed) ends
  /// before it; truncated() tells.
  std::optional<RunEvent> next();
  bool truncated() const { return truncated_; }

 private:
  size_t check_first_line() const;
  uint64_t number();
  int64_t signed_number();
  template <typename T>
  T bounded(uint64_t most);
  std::vector<TokenId> tokens();
  RunAdd add();
  RunCommit commit();
  RunRestore restore();
  Decision decision(DecisionKind kind);
  Error broken(std::string_view what) const;

  std::filesystem::path path_;
  std::string data_;
  size_t at_ = 0;
  uint64_t step_ = 0;  // plans so far
  bool truncated_ = false;
  SchedulerConfig config_;
};

}  // namespace quire
