// The part of Teller that follows which sequences wait, for what, and behind which others.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "record/teller.h"

namespace quire::record {
namespace {

constexpr size_t kOvertakersNamed = 3;
constexpr size_t kMostSplits = size_t{1} << 18;  // of all waits: one line of a log can split many

}  // namespace

void Teller::begin_wait(Life& life, const control::Decision& decision, const LiveSequence& seq) {
  if (step_ == 0) return;
  end_wait(life, step_ - 1);
  const auto reason =
      static_cast<control::WaitReason>(std::min<uint32_t>(decision.a, std::size(kWaitNames) - 1));
  life.waits = {.reason = reason, .steps = {step_, step_}, .needs = decision.b};
  if (life.precedence.compared) {
    life.precedence.first = first_;
    life.precedence.first_tenant = first_tenant_;
  }
  life.waits.precedence = life.precedence;
  life.waits_since = now_;
  if (!life.told) return;
  ++told_waiting_;
  if (reason == control::WaitReason::kPrefix) life.waits.parent = seq.leader;
  if (reason == control::WaitReason::kParent && seq.parent) {
    life.waits.parent = seq.parent;
    told_for_parent_.insert(seq.id);
  }
}

void Teller::end_wait(Life& life, uint64_t last) {
  if (!life.waits.begun()) return;
  WaitSpan span = std::exchange(life.waits, {});
  SequenceStory& story = of(life);
  if (span.reason == control::WaitReason::kParent) told_for_parent_.erase(story.id);
  if (life.told) --told_waiting_;
  if (last < span.steps.from) return;
  span.steps.to = last;
  span.took = std::max<Nanos>(0, now_ - life.waits_since);
  const uint64_t kept = followed_ <= last ? followed_ : followed_before_;
  span.slots_kept = span.reason == control::WaitReason::kSlots && kept >= span.steps.from;
  const uint64_t steps = last - span.steps.from + 1;
  story.waited[span.reason] += steps;
  story.waited_time += span.took;
  if (!life.has_run) {
    story.queued += steps;
    story.queued_time += span.took;
  }
  if (span.reason == control::WaitReason::kOrder) story.in_order.add(span.steps);
  if (!life.told) return;
  life.waited.add(span);
}

void Teller::compare_with_first(Life& life, const control::Cause& cause) {
  Precedence now{.first = first_, .own = {cause.ground, cause.value}};
  now.first_tenant = first_tenant_;
  now.own_tenant = of(life).tenant;
  now.compare();
  life.precedence = now;
  if (!life.told || life.waits.reason != control::WaitReason::kOrder || !life.waits.begun()) return;
  const bool differs = now.kind() != life.waits.precedence.kind();
  if (differs && life.waits.steps.from < step_ && splits_ < kMostSplits) {
    ++splits_;
    end_wait(life, step_ - 1);
    life.waits = {.reason = control::WaitReason::kOrder, .steps = {step_, step_}};
    life.waits_since = now_;
    ++told_waiting_;
  }
  if (life.waits.steps.from == step_) life.waits.precedence = now;
}

/// What the first in line lacks, in this step.
void Teller::note_short() {
  Life* found = lives_.find(short_->seq);
  if (found == nullptr || !found->waits.begun()) return;
  WaitSpan& span = found->waits;
  span.needs = std::max(span.needs, short_->a);
  span.available_least = std::min<uint64_t>(span.available_least.value_or(UINT64_MAX), short_->b);
  span.available_most = std::max<uint64_t>(span.available_most, short_->b);
  span.reserve = short_->value;
}

/// Up to now; the sequence has not been admitted.
Overtaken Teller::overtaken(const Life& life) const {
  Overtaken out;
  out.own = life.precedence.own;
  for (const Admission& each : std::span(admissions_).subspan(life.admissions)) {
    if (!each.admitted || each.index <= life.index) continue;
    if (out.count++ == 0) out.least = out.most = each.by;
    if (out.ids.size() <= kOvertakersNamed) out.ids.push_back(story_.sequences[each.index].id);
    if (each.by.ground != out.least.ground) continue;
    ++out.by_ground;
    out.least.value = std::min(out.least.value, each.by.value);
    out.most.value = std::max(out.most.value, each.by.value);
  }
  return out;
}

/// For each sequence: how many later arrivals were admitted before it was, or before it ended. A tree of sums
/// over the order of arrival (Fenwick 1994).
void Teller::count_overtaken() {
  for (const auto& [id, life] : lives_.all()) {
    if (!life.has_run) admissions_.push_back({life.index, {}, false});
  }
  const size_t size = story_.sequences.size();
  std::vector<uint32_t> sums(size + 1);
  uint64_t admitted = 0;
  for (const Admission& each : admissions_) {
    uint64_t earlier = 0;  // that arrived before it, or itself
    for (size_t i = each.index + 1; i > 0; i -= i & (~i + 1)) earlier += sums[i];
    story_.sequences[each.index].overtaken = admitted - earlier;
    if (!each.admitted) continue;
    ++admitted;
    for (size_t i = each.index + 1; i <= size; i += i & (~i + 1)) ++sums[i];
  }
}

void Teller::flush_wait(Life& life, uint64_t last) {
  end_wait(life, last);
  if (life.waited.empty()) return;
  const WaitContext context{.config = story_.config,
                            .line = story_.line,
                            .tally = tally_,
                            .id_of = [&](size_t index) { return story_.sequences.at(index).id; },
                            .tenant = [&](uint64_t tenant) { return tenants_.name(tenant); }};
  say(life, life.waited.range().from, life.waited.range().to,
      wait_text(life.waited, life.has_run ? Overtaken{} : overtaken(life), context));
  life.waited = {};
}

}  // namespace quire::record
