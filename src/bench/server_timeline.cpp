#include "bench/server_timeline.h"

#include <algorithm>
#include <cmath>

#include "bench/server_footprint.h"

namespace quire::bench {
namespace {

/// How much a counter has grown. It falls when the server has been started anew.
uint64_t growth(double before, double now) {
  constexpr double kMost = 0x1p53;
  return static_cast<uint64_t>(std::llround(std::clamp(now - before, 0.0, kMost)));
}

}  // namespace

void ServerTimeline::take(Nanos at, std::string_view metrics) {
  const auto value = [&](std::string_view name) {
    return std::max(0.0, metric_value(metrics, name).value_or(0));
  };
  if (!metric_value(metrics, "vllm:num_requests_running")) return;
  const Reading now{.at = std::max<Nanos>(0, at),
                    .running = value("vllm:num_requests_running"),
                    .waiting = value("vllm:num_requests_waiting"),
                    .held = std::min(1.0, value("vllm:kv_cache_usage_perc")),
                    .queried = value("vllm:prefix_cache_queries_total"),
                    .hit = value("vllm:prefix_cache_hits_total"),
                    .preempted = value("vllm:num_preemptions_total"),
                    .output = value("vllm:generation_tokens_total")};
  if (last_ && now.at > last_->at) {
    // What it was between two readings is not known: their mean.
    const auto middle = [](double a, double b) { return (a + b) / 2; };
    timeline_.add({.from = last_->at,
                   .to = now.at,
                   .running = middle(last_->running, now.running),
                   .waiting = middle(last_->waiting, now.waiting),
                   .held = middle(last_->held, now.held),
                   .queried_tokens = growth(last_->queried, now.queried),
                   .hit_tokens = growth(last_->hit, now.hit),
                   .preemptions = growth(last_->preempted, now.preempted),
                   .output_tokens = growth(last_->output, now.output)});
  }
  if (!last_ || now.at > last_->at) last_ = now;
}

}  // namespace quire::bench
