#include "record/wait_story.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace quire {
namespace {

constexpr size_t kIdsNamed = 3;

uint64_t length(const WaitSpan& span) { return span.to - span.from + 1; }

bool for_blocks(const WaitSpan& span) {
  return span.reason == WaitReason::kBlocks || span.reason == WaitReason::kOrder;
}

/// Ids by how much they count for, the most first.
std::vector<SeqId> by_weight(const std::map<SeqId, uint64_t>& weights) {
  std::vector<std::pair<SeqId, uint64_t>> sorted(weights.begin(), weights.end());
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<SeqId> ids;
  for (const auto& [id, weight] : sorted) ids.push_back(id);
  return ids;
}

/// Why the others stand before it.
std::string_view order_text(SchedulingKind kind) {
  switch (kind) {
    case SchedulingKind::kFcfs:
      return "which came earlier";
    case SchedulingKind::kSrpt:
      return "which had less left to do";
    case SchedulingKind::kSlo:
      return "which had less time to its deadline";
    case SchedulingKind::kPriority:
      return "which had precedence by priority and time of waiting";
    case SchedulingKind::kFair:
      return "whose tenant had been served less";
    case SchedulingKind::kLpm:
      return "of which more was in the prefix cache";
  }
  return "";
}

/// All waiting of one reason.
struct Part {
  uint64_t steps = 0;
  uint32_t needs = 0;
  std::map<SeqId, uint64_t> behind;
  uint64_t behind_waits = 0;
};

/// "#3, which waited itself for 4 of them,"
std::string parent_text(const Part& part, const std::string& parent) {
  if (part.behind_waits == 0) return parent;
  if (part.behind_waits == part.steps) return parent + ", which waited itself,";
  return fmt::format("{}, which waited itself for {} of them,", parent, part.behind_waits);
}

/// What it waits for, without who held the blocks.
std::string reason_text(WaitReason reason, const Part& part, const SchedulerConfig& config) {
  const std::string behind = list_ids(by_weight(part.behind), part.behind.size());
  switch (reason) {
    case WaitReason::kNone:
      break;
    case WaitReason::kSlots:
      return fmt::format("because all {} slots were taken", config.max_num_seqs);
    case WaitReason::kBudget:
      return fmt::format("because the {} tokens of a step went to others", config.max_num_batched_tokens);
    case WaitReason::kBlocks:
      return fmt::format("first in line, for {} of K/V", plural(part.needs, "block"));
    case WaitReason::kOrder:
      return fmt::format("behind {}, {}", behind.empty() ? "others" : behind, order_text(config.scheduling));
    case WaitReason::kParent:
      return fmt::format("for {} to compute the tokens that they share",
                         parent_text(part, behind.empty() ? "another" : behind));
    case WaitReason::kPreempt:
      return "because a step that preempts lets nobody in";
    case WaitReason::kBatch:
      return "because a static batch had to end first";
  }
  return "";
}

}  // namespace

std::string plural(uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string list_ids(const std::vector<SeqId>& ids, size_t count) {
  size_t named = std::min(kIdsNamed, ids.size());
  if (ids.size() == count && count == named + 1) ++named;  // "and 1 other" is no shorter than its name
  std::string out;
  for (size_t i = 0; i < named; ++i) {
    out += fmt::format("{}#{}", i == 0 ? "" : i + 1 == count ? " and " : ", ", ids[i]);
  }
  if (named < count)
    out += count - named == 1 ? " and one other" : fmt::format(" and {} others", count - named);
  return out;
}

void BlockHolders::note(const RunState& state) {
  if (state.first_in_line() == nullptr) return;
  Step& step = steps_.emplace_back();
  step.step = state.step();
  step.count = state.num_holders();
  const auto largest = state.largest_holders(kNamed);
  for (size_t i = 0; i < largest.size(); ++i) step.largest[i] = largest[i]->id;
}

std::string BlockHolders::name(const std::vector<WaitSpan>& spans) const {
  std::map<SeqId, uint64_t> weights;
  uint32_t most = 0;
  for (const WaitSpan& span : spans) {
    if (!for_blocks(span)) continue;
    auto step = std::ranges::lower_bound(steps_, span.from, {}, &Step::step);
    for (; step != steps_.end() && step->step <= span.to; ++step) {
      most = std::max(most, step->count);
      for (size_t i = 0; i < std::min<size_t>(step->count, kNamed); ++i) ++weights[step->largest[i]];
    }
  }
  std::vector<SeqId> ids = by_weight(weights);
  if (ids.size() > kNamed) ids.resize(kNamed);
  return ids.empty() ? std::string() : list_ids(ids, std::max<size_t>(most, ids.size()));
}

std::string wait_text(const std::vector<WaitSpan>& spans, const BlockHolders& holders,
                      const SchedulerConfig& config) {
  std::map<WaitReason, Part> parts;
  uint64_t steps = 0;
  for (const WaitSpan& span : spans) {
    Part& part = parts[span.reason];
    part.steps += length(span);
    part.needs = std::max(part.needs, span.needs);
    if (span.behind) part.behind[*span.behind] += length(span);
    if (span.behind_waits) part.behind_waits += length(span);
    steps += length(span);
  }
  std::vector<std::pair<WaitReason, Part>> sorted(parts.begin(), parts.end());
  std::ranges::stable_sort(sorted,
                           [](const auto& a, const auto& b) { return a.second.steps > b.second.steps; });
  std::string out = fmt::format("waits {}", plural(steps, "step"));
  for (size_t i = 0; i < sorted.size(); ++i) {
    const auto& [reason, part] = sorted[i];
    if (sorted.size() == 1) {
      out += ' ';
    } else {
      out += fmt::format("{} {} ", i == 0 ? ":" : ";", part.steps);
    }
    out += reason_text(reason, part, config);
  }
  const std::string names = holders.name(spans);
  if (names.empty()) return out;
  out += parts.contains(WaitReason::kBlocks) ? fmt::format(". The blocks were held by {}", names)
                                             : fmt::format(". Those waited for blocks that {} held", names);
  return out;
}

}  // namespace quire
