#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/container/flat_map.hpp>

#include "control/cause.h"
#include "control/scheduler.h"
#include "record/precedence.h"
#include "record/run_state.h"
#include "record/step_ranges.h"

namespace quire::record {

/// The sequences that arrived later than a sequence and were admitted before it.
struct Overtaken {
  std::vector<SeqId> ids;  // the first few
  size_t count = 0;
  control::Standing least;  // of those admitted by `ground`
  control::Standing most;
  size_t by_ground = 0;   // how many were admitted by the same ground as the first of them
  control::Standing own;  // when it was last compared
};

/// How many steps were waited for each reason that occurred.
using StepsByReason = boost::container::flat_map<control::WaitReason, uint64_t>;

/// Steps in which a sequence waited for one reason.
struct WaitSpan {
  control::WaitReason reason = control::WaitReason::kNone;
  StepRange steps;
  Nanos took = 0;
  uint32_t needs = 0;                         // kBlocks: the blocks it needs,
  std::optional<uint64_t> available_least{};  //   how many were available,
  uint64_t available_most = 0;
  int64_t reserve = 0;            //   and how many must stay available
  Precedence precedence;          // kOrder: why the first in line comes before it
  std::optional<SeqId> parent{};  // kParent; kPrefix: the sequence that computes the prefix
  uint64_t parent_waited = 0;     // kParent: in how many of the steps the parent waited itself
  bool slots_kept = false;        // kSlots: in some steps, slots were kept for sequences with reason kPrefix

  bool begun() const { return steps.from != 0; }
};

/// The waits of a sequence up to its admission or its end. What they have in common is kept once: where the
/// first in line changes often, there are as many of them as steps.
class Waits {
 public:
  /// All waiting of one reason and one precedence.
  struct Part {
    WaitSpan sum;  // `steps` is that of the first, and a number is the largest of all, if not said otherwise
    uint32_t kind = 0;  // of the precedence
    uint64_t steps = 0;
    StepRanges ranges;
  };

  /// REQUIRES: `span` begins after the end of the last one.
  void add(const WaitSpan& span);

  bool empty() const { return parts_.empty(); }
  const StepRange& range() const { return range_; }  // from the first step of all to the last
  uint64_t steps() const { return steps_; }
  Nanos took() const { return took_; }
  const std::vector<Part>& parts() const { return parts_; }

 private:
  std::vector<Part> parts_;
  StepRange range_;
  uint64_t steps_ = 0;
  Nanos took_ = 0;
};

/// A weight per sequence, by its number in the run; created once and used for many sums.
class Tally {
 public:
  void add(size_t sequence, uint64_t weight);
  size_t count() const { return touched_.size(); }
  /// Returns those with the highest weight, the earliest first among equals, and clears all weights.
  std::vector<size_t> take(size_t most);

 private:
  std::vector<uint64_t> weights_;
  std::vector<size_t> touched_;
};

/// For each step, the sequence that was first in line and waited for blocks, and the sequences that held the
/// blocks. A sequence that waits by policy order waits behind the first in line.
class LineHistory {
 public:
  /// To be called at the end of a plan; `with_holders`: whether the holders will be needed.
  void note(const RunState& state, bool with_holders);
  /// The number of steps in which a sequence was first in line.
  uint64_t steps() const { return steps_.size(); }
  /// Adds, for each of these steps, 1 to the first in line.
  void add_first(const StepRanges& ranges, Tally& tally) const;
  /// Adds the largest holders; returns the highest number of holders in a step.
  uint32_t add_holders(const StepRanges& ranges, Tally& tally) const;

  static constexpr size_t kNamed = 3;

 private:
  struct Step {
    uint64_t step = 0;
    size_t first = 0;
    uint32_t count = 0;                    // of all holders
    std::array<size_t, kNamed> largest{};  // the first min(count, kNamed) of them
  };
  void each(const StepRanges& ranges, const auto& visit) const;

  std::vector<Step> steps_;  // ascending
};

/// The inputs of a sentence about a wait, besides its spans.
struct WaitContext {
  const control::SchedulerConfig& config;
  const LineHistory& line;
  Tally& tally;
  std::function<SeqId(size_t)> id_of;           // by number in the run
  std::function<std::string(uint64_t)> tenant;  // its name
};

/// "waits 14 steps (0.12 s): 9 first in line, for 2 blocks of K/V; 5 behind #8, which arrived earlier. The
/// blocks were held by ...". It ends with the sequences that were admitted before it.
std::string wait_text(const Waits& waits, const Overtaken& overtaken, const WaitContext& context);

/// The reasons of waiting steps, the most frequent first: "9 for blocks (4 first in line, 5 behind it), 2 for
/// a slot"; `amount` formats the numbers.
std::string waited_for_text(const StepsByReason& waited, const std::function<std::string(uint64_t)>& amount);

/// "#3, #7, #9 and 2 others": lists the first of `count` ids; `ids` has at least the first few.
std::string list_ids(const std::vector<SeqId>& ids, size_t count);

}  // namespace quire::record
