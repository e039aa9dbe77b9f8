#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/cause.h"
#include "control/scheduler.h"
#include "record/run_state.h"

namespace quire::record {

/// Steps [from, to].
struct StepRange {
  uint64_t from = 0;
  uint64_t to = 0;
};

/// Why the first in line comes before another, by the causes that the scheduler told.
struct Precedence {
  bool compared = false;  // else the policy did not look at this one, which came later
  control::Standing first;
  control::Standing own;
  uint64_t first_tenant = 0;
  uint64_t own_tenant = 0;

  /// Where it is equal, the same sentence is true.
  uint32_t kind() const;
};

/// Who arrived later than a sequence and was admitted before it.
struct Overtaken {
  std::vector<SeqId> ids;  // the first few
  size_t count = 0;
  control::Standing least;  // of those that came in by `ground`
  control::Standing most;
  size_t by_ground = 0;   // so many came in by the same ground as the first of them
  control::Standing own;  // when it was last compared
};

/// Steps in which a sequence waited for one reason.
struct WaitSpan {
  control::WaitReason reason = control::WaitReason::kNone;
  StepRange steps;
  Nanos took = 0;
  uint32_t needs = 0;                         // kBlocks: so many blocks,
  std::optional<uint64_t> available_least{};  //   so many were there,
  uint64_t available_most = 0;
  int64_t reserve = 0;            //   and so many must stay free
  Precedence precedence;          // kOrder: why the first in line comes before it
  std::optional<SeqId> parent{};  // kParent
  uint64_t parent_waited = 0;     // kParent: in so many of the steps it waited itself

  bool begun() const { return steps.from != 0; }
};

/// Sequences, by their number in the run, with a weight each; made once and used for many sums.
class Tally {
 public:
  void add(size_t sequence, uint64_t weight);
  size_t count() const { return touched_.size(); }
  /// Those of most weight, the earliest first among equals; forgets all.
  std::vector<size_t> take(size_t most);

 private:
  std::vector<uint64_t> weights_;
  std::vector<size_t> touched_;
};

/// Who was first in line and waited for blocks, and who held them, step by step. Who waits by policy order
/// waits behind it.
class LineHistory {
 public:
  /// At the end of a plan; who holds the blocks only if somebody will ask.
  void note(const RunState& state, bool with_holders);
  /// Steps in which somebody was first in line.
  uint64_t steps() const { return steps_.size(); }
  /// Adds who was first in line in these steps, a step each.
  void add_first(const StepRange& range, Tally& tally) const;
  /// Adds who held most; the most holders that there were.
  uint32_t add_holders(const StepRange& range, Tally& tally) const;

  static constexpr size_t kNamed = 3;

 private:
  struct Step {
    uint64_t step = 0;
    size_t first = 0;
    uint32_t count = 0;                    // of all holders
    std::array<size_t, kNamed> largest{};  // the first min(count, kNamed) of them
  };
  std::vector<Step> steps_;  // ascending
};

/// What a sentence about a wait is made of, beside its spans.
struct WaitContext {
  const control::SchedulerConfig& config;
  const LineHistory& line;
  Tally& tally;
  std::function<SeqId(size_t)> id_of;           // by number in the run
  std::function<std::string(uint64_t)> tenant;  // its name
};

/// "waits 14 steps (0.12 s): 9 first in line, for 2 blocks of K/V; 5 behind #8, which came earlier. The
/// blocks were held by ...". `spans` in order.
/// It ends with who came in before it.
std::string wait_text(const std::vector<WaitSpan>& spans, const Overtaken& overtaken,
                      const WaitContext& context);

/// What steps of waiting were for, the most first: "9 for blocks (4 first in line, 5 behind it), 2 for a
/// slot", the numbers as `amount` has them.
std::string waited_for_text(const std::map<control::WaitReason, uint64_t>& waited,
                            const std::function<std::string(uint64_t)>& amount);

/// "#3, #7, #9 and 2 others": the first of `count` ids, of which `ids` has the first or all.
std::string list_ids(const std::vector<SeqId>& ids, size_t count);

}  // namespace quire::record
