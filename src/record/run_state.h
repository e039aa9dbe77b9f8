#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/scheduler.h"
#include "record/run_record.h"
#include "record/seq_map.h"

namespace quire::record {

/// The state of a sequence in a step.
enum class Phase : uint8_t {
  kQueued,     // waits, and has never run
  kPrefill,    // computes tokens of its prompt, or recomputes after a preemption
  kDecode,     // computes the token it sampled last
  kStalled,    // runs, but has no part in this step, because there is no block for it
  kPreempted,  // waits; a preemption gave up its K/V
  kSwapped,    // waits; its K/V is in the host pool
};

/// A sequence of a recorded run that has not ended, as far as the run has been read.
struct LiveSequence {
  SeqId id = 0;
  size_t index = 0;             // how many were added before it, including refused ones
  std::optional<SeqId> parent;  // of a fork
  std::optional<SeqId> leader;  // with kPrefix: computes its next block
  uint32_t prompt = 0;          // tokens
  uint32_t most = 0;            // the most tokens to generate
  uint32_t total = 0;           // tokens now
  uint32_t computed = 0;        // tokens that have K/V
  uint32_t planned = 0;         // tokens of the last plan
  uint32_t in_flight = 0;       // tokens that steps in flight compute
  uint32_t pending = 0;         // tokens that steps in flight sample
  bool decoding = false;        // its part in the last plan computes the token before it
  uint32_t blocks = 0;          // blocks that it holds
  std::vector<uint32_t> host;   // blocks of the host pool that are its own
  uint32_t preemptions = 0;
  std::optional<uint64_t> admitted;  // how many were admitted for the first time before it
  uint32_t admissions = 0;
  bool running = false;
  control::WaitReason waits = control::WaitReason::kNone;
  uint32_t needs = 0;  // with kBlocks: the blocks it needed when it began to wait for them

  uint32_t next() const { return computed + in_flight; }  // where its next step begins
  uint32_t left() const;                                  // tokens to compute
  bool decodes() const { return next() >= prompt && left() == 1; }
  /// Its state in the step of the last plan.
  Phase phase() const;
};

/// A value for each block, initially T(); uses memory only for blocks that were named, 256 bytes at a time.
template <typename T>
class BlockValues {
 public:
  T& operator[](uint32_t block) {
    const size_t page = block / kPage;
    if (page >= pages_.size()) pages_.resize(page + 1);
    if (!pages_[page]) pages_[page] = std::make_unique<std::array<T, kPage>>();
    return (*pages_[page])[block % kPage];
  }
  T at(uint32_t block) const {
    const size_t page = block / kPage;
    return page < pages_.size() && pages_[page] ? (*pages_[page])[block % kPage] : T();
  }
  /// `each(block, value)` for all that have memory, in order.
  template <typename Each>
  void for_each(const Each& each) const {
    for (size_t page = 0; page < pages_.size(); ++page) {
      if (!pages_[page]) continue;
      for (size_t i = 0; i < kPage; ++i) each(static_cast<uint32_t>(page * kPage + i), (*pages_[page])[i]);
    }
  }

 private:
  static constexpr size_t kPage = std::bit_floor(256 / sizeof(T));
  std::vector<std::unique_ptr<std::array<T, kPage>>> pages_;
};

/// A sequence's part in a plan.
struct PlannedPart {
  SeqId id = 0;
  uint32_t tokens = 0;
  uint32_t admissions = 0;  // LiveSequence::admissions when it was planned
};

/// Reconstructs the state of a recorded run from its events: which sequences run, wait and hold blocks at
/// each moment. An inconsistent record gives some arbitrary state, never a crash.
class RunState {
 public:
  /// `steps_before`: planned before the log begins.
  explicit RunState(const control::SchedulerConfig& config, uint64_t steps_before = 0)
      : config_(config), step_(steps_before) {}
  /// The state of a scheduler now; the sequences are numbered in the order of their arrival. Host blocks are
  /// numbered anew. REQUIRES: no plan is open.
  explicit RunState(control::Scheduler& scheduler);

  void take(const RunEvent& event);

  const control::SchedulerConfig& config() const { return config_; }
  /// Plans so far, those before the log included.
  uint64_t step() const { return step_; }
  Nanos now() const { return now_; }  // of the last plan
  const std::map<SeqId, LiveSequence>& live() const { return live_.all(); }
  const LiveSequence* find(SeqId id) const { return live_.find(id); }
  /// The sequences that compute in the step, in the order of the plan.
  const std::vector<SeqId>& planned() const { return planned_; }
  /// The parts of the plan to which these results belong, in the order of the plan; empty if the plan is not
  /// open.
  const std::vector<PlannedPart>& parts_of(const RunCommit& commit) const;
  /// Whether the sequence has been running since that plan. Otherwise it was preempted, and only a sampled
  /// token of the part counts.
  bool runs_on(const PlannedPart& part) const;
  /// The running sequences, in order of admission.
  const std::vector<SeqId>& running_ids() const { return running_; }
  uint32_t waiting() const { return static_cast<uint32_t>(live().size() - running_.size()); }
  uint32_t running() const { return static_cast<uint32_t>(running_.size()); }

  /// The sequence that is first in line and waits for blocks; all sequences with kOrder wait behind it.
  /// nullptr: none.
  const LiveSequence* first_in_line() const;

  /// How many block tables hold the block.
  uint32_t holders(uint32_t block) const;
  /// Whether it is in the prefix index; without holders it is cached.
  bool published(uint32_t block) const { return published_.at(block) != 0; }
  uint64_t blocks_held() const { return blocks_held_; }
  uint32_t host_blocks_free() const { return config_.num_host_blocks - host_used_; }
  /// The running sequences that hold the most blocks, ordered by number of blocks and then by id.
  std::vector<const LiveSequence*> largest_holders(size_t most) const;
  uint32_t num_holders() const;

 private:
  void take(const RunAdd& add);
  void take(const RunCommit& commit);
  void take(const control::Decision& decision);
  void begin_step(const RunPlan& plan);
  void add_as_it_is(const control::Sequence& seq);
  void hold(LiveSequence* seq, uint32_t block, bool more);
  void swap_out(LiveSequence& seq, uint32_t blocks);
  void free_host(LiveSequence& seq);
  void stop(LiveSequence& seq);

  control::SchedulerConfig config_;
  uint64_t step_ = 0;
  Nanos now_ = 0;
  SeqMap<std::map<SeqId, LiveSequence>> live_;
  std::optional<LiveSequence> added_;  // until the decision kAdd
  size_t num_added_ = 0;
  uint64_t num_admitted_ = 0;
  std::vector<SeqId> running_;  // in order of admission
  std::vector<SeqId> planned_;
  struct OpenPlan {
    uint64_t step = 0;
    std::vector<PlannedPart> parts;
  };
  std::deque<OpenPlan> open_;  // the oldest first; the last may be empty
  std::optional<SeqId> first_;
  BlockValues<uint32_t> holders_;
  BlockValues<uint8_t> published_;  // 1 or 0
  uint64_t blocks_held_ = 0;
  std::vector<uint32_t> free_host_;  // released host blocks, a stack
  uint32_t host_used_ = 0;
  uint32_t host_fresh_ = 0;  // this and all later ones were never used
};

}  // namespace quire::record
