#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "control/scheduler.h"
#include "record/run_record.h"
#include "record/run_state.h"

namespace quire::record {

/// What is told of a sequence besides its state.
struct SequenceInfo {
  std::string name;  // the id that its client knows; any bytes, may be empty
  uint64_t tenant = 0;
  Nanos arrived = 0;  // on the clock of RunPlan::now
  int32_t priority = 0;
};

/// A run at one moment, for those who follow it from there on.
struct RunStart {
  RunState state;
  std::vector<SequenceInfo> sequences;           // those of state.live(), by LiveSequence::index
  std::vector<std::pair<BlockId, size_t>> held;  // each block with the index of a sequence that holds it
  uint32_t num_groups = 1;                       // K/V groups
  std::vector<uint32_t> groups;                  // by block, its K/V group; empty if there is one
  uint32_t budget = 0;                           // tokens of a step
};

/// The run of a scheduler as it is now. `name`: of a sequence. REQUIRES: no plan is open.
RunStart start_of(control::Scheduler& scheduler, const std::function<std::string(SeqId)>& name);

/// The inputs and decisions of a run on their way from the thread that runs it to a thread that follows it.
/// Neither prompts nor sampled tokens pass, only how many there are. What waits to be taken is bounded:
/// beyond that, or if memory is short, everything is dropped up to the next begin(). The recorded run is not
/// affected.
class RunTap final : public control::DecisionSink, public control::CauseSink {
 public:
  static constexpr size_t kMostWaiting = 500'000;  // events, 48 bytes each

  /// Everything since the last take().
  struct Batch {
    std::optional<RunStart> start;  // a new start, before the events
    bool lost = false;              // the following thread was too slow: only another begin() goes on

    /// Calls `each(event)` in order. An add has as many tokens as the prompt, but not the prompt's own, and a
    /// result has token 0. Behind the decisions of a plan it calls `placed(block, group)` for its blocks.
    void for_each(const std::function<void(const RunEvent&)>& each,
                  const std::function<void(BlockId, uint32_t)>& placed) const;

   private:
    friend class RunTap;
    struct Add {
      control::SeqSpec spec;  // without its prompt
      size_t prompt = 0;      // tokens
      std::string name;
    };
    struct AddRef {
      size_t index = 0;
    };
    struct CommitRef {
      uint64_t step = 0;
      Nanos now = 0;
      size_t from = 0;  // in `results`
      size_t to = 0;
    };
    enum class Result : uint8_t { kNone, kToken, kFailed };
    struct Placed {
      BlockId block = kNoBlock;
      uint32_t group = 0;
    };
    using Event = std::variant<control::Decision, control::Cause, RunAbort, RunBudget, RunPlan, AddRef,
                               CommitRef, Placed>;

    std::vector<Event> events;
    std::vector<Add> adds;
    std::vector<Result> results;
  };

  // The running thread.
  /// What follows happens after `start`.
  void begin(RunStart start) noexcept;
  void add(const control::SeqSpec& spec, std::string_view name) noexcept;
  /// The last add() was refused, or the scheduler has thrown.
  void take_back_add() noexcept;
  void abort(SeqId id, bool stop_string) noexcept;
  void set_budget(uint32_t tokens) noexcept;
  void plan(uint64_t step, Nanos now) noexcept;
  /// Behind the decisions of the plan. They do not say to which K/V group a block goes; the plan does.
  void planned(const control::StepPlan& plan) noexcept;
  void commit(uint64_t step, const control::StepResult& result, Nanos now) noexcept;
  void take(const control::Decision& decision) noexcept override;
  void take(const control::Cause& cause) noexcept override;
  /// The scheduler's call has returned: what it did may be taken.
  void settle() noexcept;

  // The following thread.
  Batch take();

 private:
  template <class Append>
  void append(const Append& append) noexcept;
  void place(std::span<const BlockId> blocks);

  Batch writing_;  // of the running thread
  uint32_t num_groups_ = 1;
  bool lost_ = false;  // of the running thread: nothing is written before the next begin()

  std::mutex mutex_;  // guards the following member
  Batch settled_;
};

}  // namespace quire::record
