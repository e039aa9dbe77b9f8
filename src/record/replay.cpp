#include "record/replay.h"

#include <fmt/format.h>

#include "base/amounts.h"
#include "record/display_text.h"

namespace quire::record {
namespace {

/// "allocate block 14" of request 12
std::string decision_text(const std::optional<control::Decision>& decision) {
  if (!decision) return "nothing more before the next input";
  const uint32_t a = decision->a;
  std::string what;
  switch (decision->kind) {
    case control::DecisionKind::kAdd:
      what = fmt::format("{} prompt tokens, at most {} to generate", a, decision->b);
      break;
    case control::DecisionKind::kAdmit:
      what = fmt::format("slot {}, {} tokens have K/V", a, decision->b);
      break;
    case control::DecisionKind::kHit:
      what = fmt::format("{} of {} tokens", a, decision->b);
      break;
    case control::DecisionKind::kSkip:
      what = a < std::size(kWaitNames) ? fmt::format("{}, {} blocks needed", kWaitNames[a], decision->b)
                                       : fmt::format("reason {}", a);
      break;
    case control::DecisionKind::kChunk:
      what = fmt::format("{} from position {} on", plural(decision->b, "token"), a);
      break;
    case control::DecisionKind::kCopy:
      what = fmt::format("block {} to block {}", a, decision->b);
      break;
    case control::DecisionKind::kPreempt:
      what = fmt::format("{} given up, time {}", plural(a, "token"), decision->b);
      break;
    case control::DecisionKind::kSwapOut:
    case control::DecisionKind::kSwapIn:
      what = plural(a, "block");
      break;
    case control::DecisionKind::kFinish:
      what = fmt::format("reason {}", a);
      break;
    default:
      what = fmt::format("block {}", a);
  }
  return fmt::format("\"{} {}\"{}", kDecisionNames[static_cast<size_t>(decision->kind)], what,
                     decision->seq == kNoSeq ? "" : fmt::format(" of request {}", decision->seq));
}

}  // namespace

std::string difference_text(const Replay& replay) {
  if (replay.first_difference) return difference_text(*replay.first_difference);
  return fmt::format(
      "after step {}, a part of the log begins with cached blocks or a digest to which replaying the log "
      "does "
      "not lead",
      with_commas(*replay.other_cache));
}

std::string difference_text(const ReplayDifference& difference) {
  return fmt::format("decision {}, in step {}, differs: the log has {}, and replaying it gives {}",
                     with_commas(difference.number), with_commas(difference.step),
                     decision_text(difference.recorded), decision_text(difference.made));
}

}  // namespace quire::record
