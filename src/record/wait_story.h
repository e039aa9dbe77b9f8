#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/run_state.h"

namespace quire {

/// Steps [from, to] in which a sequence waited for one reason.
struct WaitSpan {
  WaitReason reason = WaitReason::kNone;
  std::optional<SeqId> behind;  // kOrder, kParent: whom
  bool behind_waits = false;    // kParent: it waits itself
  uint32_t needs = 0;           // kBlocks: so many blocks
  uint64_t from = 0;
  uint64_t to = 0;
};

/// Who held the blocks in the steps in which somebody waited for some: a few numbers a step.
class BlockHolders {
 public:
  /// At the end of a plan.
  void note(const RunState& state);
  /// "#3, #7, #9 and 4 others": those that held most, in most of the steps of these spans in which the first
  /// in line waited for blocks. Empty if it never did.
  std::string name(const std::vector<WaitSpan>& spans) const;

 private:
  static constexpr size_t kNamed = 3;
  struct Step {
    uint64_t step = 0;
    uint32_t count = 0;                   // of all holders
    std::array<SeqId, kNamed> largest{};  // the first min(count, kNamed) of them
  };
  std::vector<Step> steps_;  // ascending
};

/// "waits 14 steps: 9 first in line, for 2 blocks that #3, #7 hold; 5 behind #8, ...". `spans` in order.
std::string wait_text(const std::vector<WaitSpan>& spans, const BlockHolders& holders,
                      const SchedulerConfig& config);

/// "#3, #7, #9 and 2 others": the first of `count` ids, of which `ids` has the first or all.
std::string list_ids(const std::vector<SeqId>& ids, size_t count);

/// "1 step", "2 steps".
std::string plural(uint64_t count, std::string_view noun);

}  // namespace quire
