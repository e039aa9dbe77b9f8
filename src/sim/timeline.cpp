#include "sim/timeline.h"

#include <algorithm>
#include <utility>

#include "sim/simulation.h"

namespace quire::sim {

Timeline::Bucket& Timeline::at(Nanos time) {
  const auto index = static_cast<size_t>(time / length_);
  if (index >= buckets_.size()) buckets_.resize(index + 1);
  return buckets_[index];
}

void Timeline::merge() {
  length_ *= 2;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (i % 2 == 0) {
      buckets_[i / 2] = Bucket(buckets_[i]);
      continue;
    }
    const Bucket& from = buckets_[i];
    Bucket& into = buckets_[i / 2];
    into.running += from.running;
    into.waiting += from.waiting;
    into.held += from.held;
    into.cached += from.cached;
    into.covered += from.covered;
    into.most_waiting = std::max(into.most_waiting, from.most_waiting);
    into.queried_tokens += from.queried_tokens;
    into.hit_tokens += from.hit_tokens;
    into.preemptions += from.preemptions;
    into.output_tokens += from.output_tokens;
  }
  buckets_.resize((buckets_.size() + 1) / 2);
}

void Timeline::add(const TimelineSpan& span) {
  while (span.to / length_ >= static_cast<Nanos>(kMostBuckets)) merge();
  for (Nanos begin = span.from; begin < span.to;) {
    const Nanos end = std::min(span.to, (begin / length_ + 1) * length_);
    const auto time = static_cast<double>(end - begin);
    Bucket& bucket = at(begin);
    bucket.running += span.running * time;
    bucket.waiting += span.waiting * time;
    bucket.held += span.held * time;
    bucket.cached += span.cached * time;
    bucket.covered += end - begin;
    bucket.most_waiting = std::max(bucket.most_waiting, span.waiting);
    begin = end;
  }
  Bucket& last = at(std::max(span.from, span.to - 1));
  last.queried_tokens += span.queried_tokens;
  last.hit_tokens += span.hit_tokens;
  last.preemptions += span.preemptions;
  last.output_tokens += span.output_tokens;
}

void SimulationTimeline::take(const Simulation& simulation) {
  const control::StepStats& stats = simulation.stats();
  const Nanos now = simulation.now();
  const Nanos began = std::max(end_, now - (simulation.totals().busy - busy_));
  // While nothing runs or waits, the cached blocks stay.
  if (began > end_) timeline_.add({.from = end_, .to = began, .cached = cached_});
  const auto share = [&](uint32_t blocks) {
    return static_cast<double>(blocks) / static_cast<double>(std::max(1U, stats.blocks_total));
  };
  cached_ = share(stats.blocks_cached);
  const auto since = [](uint64_t& before, uint64_t total) { return total - std::exchange(before, total); };
  timeline_.add({.from = began,
                 .to = now,
                 .running = static_cast<double>(simulation.step_planned().running),
                 .waiting = static_cast<double>(stats.waiting),
                 .held = share(simulation.step_planned().blocks_held),
                 .cached = share(simulation.step_planned().blocks_cached),
                 .queried_tokens = since(total_.queried_tokens, stats.total_prefix_queried_tokens),
                 .hit_tokens = since(total_.hit_tokens, stats.total_prefix_hit_tokens),
                 .preemptions = since(total_.preemptions, stats.total_preemptions),
                 .output_tokens = since(total_.output_tokens, simulation.totals().output_tokens)});
  end_ = now;
  busy_ = simulation.totals().busy;
}

}  // namespace quire::sim
