#include "bench/run_data.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/amounts.h"
#include "bench/time_parts.h"

namespace quire::bench {
namespace {

/// Output tokens per second, from the times at which the tokens came.
std::vector<std::pair<double, double>> output_rate(std::span<const LoadSample> samples, Nanos elapsed) {
  TimeParts tokens(elapsed);
  for (const LoadSample& sample : samples) {
    if (!sample.ok()) continue;
    // Tokens that arrived together with the first have no gap.
    const double share = static_cast<double>(sample.tokens) / static_cast<double>(sample.gaps.size() + 1);
    Nanos at = sample.first;
    tokens.add(at, share);
    for (const Nanos gap : sample.gaps) tokens.add(at += gap, share);
  }
  return tokens.per_second();
}

std::vector<std::pair<double, double>> output_rate(const sim::Timeline& timeline, Nanos elapsed) {
  std::vector<std::pair<double, double>> out;
  const auto length = static_cast<double>(timeline.length()) / 1e9;
  for (size_t i = 0; i < timeline.buckets().size(); ++i) {
    const double begin = length * static_cast<double>(i);
    // The last bucket ends with the run.
    const double covered = std::min(length, static_cast<double>(elapsed) / 1e9 - begin);
    if (covered <= 0) break;
    out.emplace_back(begin + covered / 2, static_cast<double>(timeline.buckets()[i].output_tokens) / covered);
  }
  return out;
}

void add_times(std::vector<RunFigure>& out, const char* name, const std::optional<sim::Percentiles>& of) {
  if (!of) return;
  const std::pair<const char*, Nanos> times[] = {
      {"mean", of->mean}, {"p50", of->p50}, {"p90", of->p90}, {"p99", of->p99}};
  for (const auto& [which, time] : times) {
    out.push_back({fmt::format("{} {}", name, which), "ms", static_cast<double>(time) / 1e6});
  }
}

std::optional<sim::Percentiles> times_if(const sim::Percentiles& of) {
  return of.any ? std::optional(of) : std::nullopt;
}

}  // namespace

RunData run_of(const LoadReport& report, std::span<const LoadSample> samples, const sim::Timeline& timeline) {
  RunData run{.title = "A server under load",
              .name = "this run",
              .refused = "failed",
              .settings = {},
              .requests = report.requests,
              .finished = report.finished,
              .not_finished = report.failed,
              .prompt_tokens = report.prompt_tokens,
              .output_tokens = report.output_tokens,
              .tokens_said = report.tokens_said,
              .seconds = report.seconds(),
              .slo = report.slo,
              .good = {},
              .ttft = times_if(report.ttft),
              .tpot = times_if(report.tpot),
              .e2e = times_if(report.e2e),
              .itl = times_if(report.itl)};
  if (report.slo.any()) run.good = report.good;
  run.complaints = complaints_of(report);
  for (const LoadSample& sample : samples) {
    run.records.push_back({.number = sample.number,
                           .arrival = sample.arrival,
                           .first = sample.first,
                           .end = sample.end,
                           .tpot = sample.tpot(),
                           .prompt_tokens = sample.prompt_tokens,
                           .cached_tokens = sample.cached_tokens,
                           .finished = sample.ok()});
    if (sample.ok()) run.gaps.insert(run.gaps.end(), sample.gaps.begin(), sample.gaps.end());
  }
  run.output_rate = output_rate(samples, report.elapsed);
  run.timeline = timeline;
  run.no_timeline = "the server's /metrics, if it has them, do not say";
  uint64_t queried = 0;
  uint64_t hit = 0;
  uint64_t preempted = 0;
  for (const sim::Timeline::Bucket& bucket : timeline.buckets()) {
    queried += bucket.queried_tokens;
    hit += bucket.hit_tokens;
    preempted += bucket.preemptions;
  }
  if (!timeline.buckets().empty()) {
    run.queried_tokens = queried;
    run.hit_tokens = hit;
    run.preemptions = preempted;
  }
  return run;
}

RunData run_of(const sim::ReportBuilder& builder, const sim::KeptRequests& requests,
               const sim::Timeline& timeline) {
  const sim::SimulationReport report = builder.report();
  RunData run{.title = "A simulated run",
              .name = "this run",
              .refused = "refused",
              .settings = {},
              .requests = report.requests,
              .finished = report.totals.finished,
              .not_finished = report.totals.refused,
              .prompt_tokens = report.prompt_tokens,
              .output_tokens = report.output_tokens,
              .tokens_said = true,
              .seconds = report.seconds(),
              .slo = builder.slo(),
              .good = {},
              .ttft = times_if(report.ttft),
              .tpot = times_if(report.tpot),
              .e2e = times_if(report.e2e),
              .itl = {},
              .queue = times_if(report.queue),
              .queried_tokens = report.last.total_prefix_queried_tokens,
              .hit_tokens = report.last.total_prefix_hit_tokens,
              .preemptions = report.last.total_preemptions,
              .evictions = report.last.total_evictions};
  if (builder.slo().any()) run.good = report.good;
  run.complaints = sim::refusal_texts(report.totals);
  for (std::string& each : run.complaints) each = "Refused: " + each;
  if (std::string text = sim::interruption_text(report.unfinished(), report.requests); !text.empty()) {
    run.complaints.push_back(std::move(text));
  }
  if (const std::string text = sim::extrapolation_text(report); !text.empty()) {
    run.complaints.push_back(text + ".");
  }
  const backend::sim::FittedCost* const fitted = builder.simulation().executor().cost().fitted();
  if (fitted != nullptr && !fitted->warning.empty()) {
    run.complaints.push_back(fmt::format("Warning: {}.", fitted->warning));
  }
  for (const sim::GroupOutcome& of : builder.by_tenant()) run.groups.push_back({"tenant", of});
  for (const sim::GroupOutcome& of : builder.by_priority()) run.groups.push_back({"priority", of});
  const std::span<const sim::KeptRequest> records = requests.records();
  const uint32_t choices = builder.simulation().settings().choices;
  run.records.reserve(records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    const sim::KeptRequest& record = records[i];
    if (!record.has_history()) continue;
    run.records.push_back({.number = i + 1,
                           .arrival = record.arrival,
                           .first = record.first_token,
                           .end = record.finished,
                           .tpot = record.tpot(choices),
                           .prompt_tokens = record.prompt_tokens,
                           .finished = record.finished >= 0,
                           .refused = record.refused.has_value()});
    if (run.records.back().finished) run.records.back().cached_tokens = record.cached_tokens;
  }
  run.output_rate = output_rate(timeline, report.elapsed);
  run.timeline = timeline;
  run.has_cached = true;
  return run;
}

std::vector<RunFigure> figures_of(const RunData& run) {
  std::vector<RunFigure> out;
  const auto count = [&](std::string name, uint64_t value) {
    out.push_back({std::move(name), "", static_cast<double>(value)});
  };
  count("requests", run.requests);
  count("finished", run.finished);
  count("failed or refused", run.not_finished);
  count("prompt tokens", run.prompt_tokens);
  count(run.tokens_said ? "output tokens" : "pieces of output", run.output_tokens);
  out.push_back({"time", "s", run.seconds});
  out.push_back({"output tokens/s", "", run.per_second(run.output_tokens)});
  out.push_back({"requests/s", "", run.per_second(run.finished)});
  if (run.good) {
    out.push_back({"good requests/s", "", run.per_second(*run.good)});
    out.push_back({"attainment", "%", percent(*run.good, run.ended())});
  }
  add_times(out, "TTFT", run.ttft);
  add_times(out, "TPOT", run.tpot);
  add_times(out, "ITL", run.itl);
  add_times(out, "E2E", run.e2e);
  add_times(out, "queue", run.queue);
  if (run.queried_tokens && run.hit_tokens) {
    out.push_back({"prefix hits", "%", percent(*run.hit_tokens, *run.queried_tokens)});
  }
  if (run.queried_tokens && run.hit_bound) {
    out.push_back({"prefix hits at most", "%", percent(*run.hit_bound, *run.queried_tokens)});
  }
  if (run.preemptions) count("preemptions", *run.preemptions);
  if (run.evictions) count("evictions", *run.evictions);
  return out;
}

}  // namespace quire::bench
