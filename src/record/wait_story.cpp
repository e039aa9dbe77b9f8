#include "record/wait_story.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/amounts.h"
#include "record/display_text.h"

namespace quire::record {
namespace {

constexpr size_t kIdsNamed = 3;

bool for_blocks(const WaitSpan& span) {
  return span.reason == control::WaitReason::kBlocks || span.reason == control::WaitReason::kOrder;
}

/// "of higher priority (-2 to 0, its own is 5)": why they were admitted before it.
std::string overtaken_by(const Overtaken& of) {
  switch (of.least.ground) {
    case control::Ground::kProtected:
      return "preempted so often that they come first under any policy";
    case control::Ground::kPassed:
      return "overtaken so often that they come first";
    case control::Ground::kWork:
      return "with less left to do";
    case control::Ground::kDeadline:
      return "with less time to the deadline";
    case control::Ground::kPriority: {
      const std::string range = of.least.value == of.most.value
                                    ? fmt::format("{}", of.least.value)
                                    : fmt::format("{} to {}", of.least.value, of.most.value);
      return of.own.ground == control::Ground::kPriority
                 ? fmt::format("of higher priority ({}, its own is {})", range, of.own.value)
                 : fmt::format("of higher priority ({})", range);
    }
    case control::Ground::kShare:
      return "whose tenants had been served less";
    case control::Ground::kCached:
      return "with more in the prefix cache";
    default:
      return "while it could not be admitted itself";
  }
}

std::string overtaken_text(const Overtaken& of) {
  if (of.count == 0) return "";
  return fmt::format(". {} that arrived later overtook it ({}), {}{}", with_commas(of.count),
                     list_ids(of.ids, of.count), of.by_ground < of.count ? "most of them " : "",
                     overtaken_by(of));
}

/// The parts of the waits, those with the most steps first.
std::vector<const Waits::Part*> most_first(const Waits& waits) {
  std::vector<const Waits::Part*> parts;
  for (const Waits::Part& part : waits.parts()) parts.push_back(&part);
  std::ranges::stable_sort(parts, std::ranges::greater{}, &Waits::Part::steps);
  return parts;
}

/// "for 11 blocks of K/V (and 1 must stay free; 3 to 5 were available)"
std::string bill_text(const WaitSpan& sum) {
  std::string text = fmt::format("first in line, for {} of K/V", plural(sum.needs, "block"));
  if (!sum.available_least) return text;
  text += " (";
  if (sum.reserve > 0) {
    text += fmt::format("and {} must stay free; ", with_commas(static_cast<uint64_t>(sum.reserve)));
  }
  text += *sum.available_least == sum.available_most
              ? fmt::format("{} available)", with_commas(sum.available_most))
              : fmt::format("{} to {} available)", with_commas(*sum.available_least),
                            with_commas(sum.available_most));
  return text;
}

/// "#3, which waited itself for 4 of them,"
std::string parent_text(const Waits::Part& part) {
  if (!part.sum.parent) return "another";
  const std::string parent = fmt::format("#{}", *part.sum.parent);
  if (part.sum.parent_waited == 0) return parent;
  if (part.sum.parent_waited == part.steps) return parent + ", which waited itself,";
  return fmt::format("{}, which waited itself for {} of them,", parent, part.sum.parent_waited);
}

std::string list_of(Tally& tally, size_t count, const WaitContext& context) {
  std::vector<SeqId> ids;
  for (const size_t sequence : tally.take(kIdsNamed + 1)) ids.push_back(context.id_of(sequence));
  return list_ids(ids, std::max(count, ids.size()));
}

std::string order_text(const Waits::Part& part, const WaitContext& context) {
  context.line.add_first(part.ranges, context.tally);
  const size_t count = context.tally.count();
  const std::string behind = count == 0 ? "others" : list_of(context.tally, count, context);
  return fmt::format("behind {}, {}", behind, precedence_text(part.sum.precedence, context.tenant));
}

/// The reason for waiting, without the holders of the blocks.
std::string reason_text(const Waits::Part& part, const WaitContext& context) {
  switch (part.sum.reason) {
    case control::WaitReason::kNone:
      break;
    case control::WaitReason::kSlots:
      if (context.config.max_num_seqs == 1) return "because the only slot was taken";
      return fmt::format("because all {} slots were taken{}", context.config.max_num_seqs,
                         part.sum.slots_kept ? ", or kept for requests that wait for a prefix" : "");
    case control::WaitReason::kBudget:
      return "because other requests used up the token budget";
    case control::WaitReason::kBlocks:
      return bill_text(part.sum);
    case control::WaitReason::kOrder:
      return order_text(part, context);
    case control::WaitReason::kParent:
      return fmt::format("for {} to compute the tokens that they share", parent_text(part));
    case control::WaitReason::kPrefix:
      return fmt::format("for {} to compute the next block that they share", parent_text(part));
    case control::WaitReason::kPreempt:
      return "because admission paused (a step that preempts admits no request)";
    case control::WaitReason::kToken:
      return "because the first in line waited for a token of an open step";
    case control::WaitReason::kBatch:
      return "because a static batch had to end first";
  }
  return "";
}

/// "#3, #7 and 4 others": the largest holders in most of these steps.
std::string holders_text(const Waits& waits, const WaitContext& context) {
  uint32_t count = 0;
  for (const Waits::Part& part : waits.parts()) {
    if (!for_blocks(part.sum)) continue;
    count = std::max(count, context.line.add_holders(part.ranges, context.tally));
  }
  std::vector<SeqId> ids;
  for (const size_t sequence : context.tally.take(LineHistory::kNamed))
    ids.push_back(context.id_of(sequence));
  return ids.empty() ? std::string() : list_ids(ids, std::max<size_t>(count, ids.size()));
}

}  // namespace

void Tally::add(size_t sequence, uint64_t weight) {
  if (sequence >= weights_.size()) weights_.resize(std::max(sequence + 1, 2 * weights_.size()));
  if (weights_[sequence] == 0) touched_.push_back(sequence);
  weights_[sequence] += weight;
}

std::vector<size_t> Tally::take(size_t most) {
  const size_t kept = std::min(most, touched_.size());
  std::ranges::partial_sort(
      touched_, touched_.begin() + static_cast<ptrdiff_t>(kept),
      [&](size_t a, size_t b) { return weights_[a] != weights_[b] ? weights_[a] > weights_[b] : a < b; });
  std::vector<size_t> out(touched_.begin(), touched_.begin() + static_cast<ptrdiff_t>(kept));
  for (const size_t sequence : touched_) weights_[sequence] = 0;
  touched_.clear();
  return out;
}

void LineHistory::note(const RunState& state, bool with_holders) {
  const LiveSequence* first = state.first_in_line();
  if (first == nullptr) return;
  Step& step = steps_.emplace_back();
  step.step = state.step();
  step.first = first->index;
  if (!with_holders) return;
  step.count = state.num_holders();
  const auto largest = state.largest_holders(kNamed);
  for (size_t i = 0; i < largest.size(); ++i) step.largest[i] = largest[i]->index;
}

/// Calls `visit` with each step of these ranges.
void LineHistory::each(const StepRanges& ranges, const auto& visit) const {
  auto step = steps_.begin();
  bool found = false;
  ranges.each([&](const StepRange& range) {
    // A long wait has a range for almost each of its steps, so the next one is near.
    if (!found) step = std::ranges::lower_bound(steps_, range.from, {}, &Step::step);
    found = true;
    while (step != steps_.end() && step->step < range.from) ++step;
    for (; step != steps_.end() && step->step <= range.to; ++step) visit(*step);
  });
}

void LineHistory::add_first(const StepRanges& ranges, Tally& tally) const {
  each(ranges, [&](const Step& step) { tally.add(step.first, 1); });
}

uint32_t LineHistory::add_holders(const StepRanges& ranges, Tally& tally) const {
  uint32_t most = 0;
  each(ranges, [&](const Step& step) {
    most = std::max(most, step.count);
    for (size_t i = 0; i < std::min<size_t>(step.count, kNamed); ++i) tally.add(step.largest[i], 1);
  });
  return most;
}

std::string list_ids(const std::vector<SeqId>& ids, size_t count) {
  size_t named = std::min(kIdsNamed, ids.size());
  if (ids.size() == count && count == named + 1) ++named;  // "and one other" is not shorter than its id
  std::string out;
  for (size_t i = 0; i < named; ++i) {
    out += fmt::format("{}#{}", i == 0 ? "" : i + 1 == count ? " and " : ", ", ids[i]);
  }
  if (named < count) {
    out += count - named == 1 ? " and one other" : fmt::format(" and {} others", with_commas(count - named));
  }
  return out;
}

std::string waited_for_text(const StepsByReason& waited, const std::function<std::string(uint64_t)>& amount) {
  const auto steps_of = [&](control::WaitReason reason) {
    const auto found = waited.find(reason);
    return found == waited.end() ? uint64_t{0} : found->second;
  };
  const uint64_t first = steps_of(control::WaitReason::kBlocks);
  const uint64_t behind = steps_of(control::WaitReason::kOrder);
  std::string blocks = "for blocks";
  if (behind == 0) {
    blocks += ", first in line";
  } else if (first == 0) {
    blocks += ", behind the first in line";
  } else {
    blocks += fmt::format(" ({} first in line, {} behind it)", amount(first), amount(behind));
  }
  std::vector<std::pair<uint64_t, std::string>> parts = {
      {first + behind, blocks},
      {steps_of(control::WaitReason::kPreempt), "while a step preempted"},
      {steps_of(control::WaitReason::kSlots), "for a slot"},
      {steps_of(control::WaitReason::kBudget), "for token budget"},
      {steps_of(control::WaitReason::kParent), "for a parent's prompt"},
      {steps_of(control::WaitReason::kPrefix), "for a prefix that another computes"},
      {steps_of(control::WaitReason::kToken), "for a token of an open step"},
      {steps_of(control::WaitReason::kBatch), "for a static batch to end"}};
  std::ranges::stable_sort(parts, std::ranges::greater{}, [](const auto& part) { return part.first; });
  std::string text;
  for (const auto& [steps, what] : parts) {
    if (steps > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", amount(steps), what);
  }
  return text;
}

void Waits::add(const WaitSpan& span) {
  const uint32_t kind = span.precedence.kind();
  auto part = std::ranges::find_if(
      parts_, [&](const Part& other) { return other.sum.reason == span.reason && other.kind == kind; });
  if (part == parts_.end()) {
    part = parts_.insert(parts_.end(), Part{.sum = span, .kind = kind});
  } else {
    WaitSpan& sum = part->sum;
    sum.needs = std::max(sum.needs, span.needs);
    sum.reserve = std::max(sum.reserve, span.reserve);
    if (span.available_least) {
      sum.available_least = std::min(sum.available_least.value_or(UINT64_MAX), *span.available_least);
      sum.available_most = std::max(sum.available_most, span.available_most);
    }
    sum.parent = span.parent;
    sum.parent_waited += span.parent_waited;
    sum.slots_kept = sum.slots_kept || span.slots_kept;
  }
  const uint64_t length = span.steps.to - span.steps.from + 1;
  part->steps += length;
  part->ranges.add(span.steps);
  if (steps_ == 0) range_.from = span.steps.from;
  range_.to = span.steps.to;
  steps_ += length;
  took_ += span.took;
}

std::string wait_text(const Waits& waits, const Overtaken& overtaken, const WaitContext& context) {
  std::string out = fmt::format("waits {} ({})", plural(waits.steps(), "step"), duration_text(waits.took()));
  const std::vector<const Waits::Part*> parts = most_first(waits);
  for (size_t i = 0; i < parts.size(); ++i) {
    out += parts.size() == 1 ? " " : fmt::format("{} {} ", i == 0 ? ":" : ";", parts[i]->steps);
    out += reason_text(*parts[i], context);
  }
  out += overtaken_text(overtaken);
  const std::string names = holders_text(waits, context);
  if (names.empty()) return out;
  const bool first_in_line = std::ranges::any_of(
      parts, [](const auto* part) { return part->sum.reason == control::WaitReason::kBlocks; });
  out += first_in_line ? fmt::format(". The blocks were held by {}", names)
                       : fmt::format(". Those waited for blocks that {} held", names);
  return out;
}

}  // namespace quire::record
