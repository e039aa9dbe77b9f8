#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "base/amounts.h"
#include "bench/plot.h"
#include "bench/run_page.h"
#include "bench/time_parts.h"

namespace quire::bench {
namespace {

double as_ms(Nanos time) { return static_cast<double>(time) / 1e6; }
double as_seconds(Nanos time) { return static_cast<double>(time) / 1e9; }

const PlotAxis kTimeAxis{"seconds since the start"};
const PlotAxis kMsAxis{.label = "milliseconds", .is_log = true};

// ---- distributions ----

/// Sorted times of a run.
struct Times {
  std::string name;
  std::vector<Nanos> sorted;
};

/// For each time, the percentage of times that are not longer.
PlotSeries distribution(const Times& times) {
  constexpr size_t kMostPoints = 200;
  PlotSeries out{times.name, {}};
  const size_t count = times.sorted.size();
  if (count == 0) return out;
  out.points.emplace_back(as_ms(times.sorted.front()), 0);
  const size_t points = std::min(kMostPoints, count);
  for (size_t i = 1; i <= points; ++i) {
    const size_t rank = count * i / points;
    out.points.emplace_back(as_ms(times.sorted[rank - 1]),
                            100.0 * static_cast<double>(rank) / static_cast<double>(count));
  }
  return out;
}

/// A row for each of some percentages, so that the times of two runs stand beside each other.
PlotTable distribution_table(const std::vector<Times>& runs) {
  PlotTable out{{"per cent, in milliseconds"}, {}};
  for (const Times& run : runs) out.head.push_back(run.name);
  for (const size_t percent : {1, 5, 10, 25, 50, 75, 90, 95, 99, 100}) {
    std::vector<std::string>& row = out.rows.emplace_back();
    row.push_back(std::to_string(percent));
    for (const Times& run : runs) {
      const size_t rank = (run.sorted.size() * percent + 99) / 100;
      row.push_back(rank == 0 ? "-" : number_text(as_ms(run.sorted[rank - 1])));
    }
  }
  return out;
}

using TimeOf = std::function<std::optional<Nanos>(const RunRequest&)>;

Times times_of(const RunData& run, const TimeOf& time_of) {
  Times out{run.name, {}};
  for (const RunRequest& request : run.records) {
    if (!request.finished) continue;
    if (const auto time = time_of(request)) out.sorted.push_back(*time);
  }
  std::sort(out.sorted.begin(), out.sorted.end());
  return out;
}

std::string distribution_figure(std::string_view title, std::vector<Times> runs) {
  std::erase_if(runs, [](const Times& run) { return run.sorted.empty(); });
  std::vector<PlotSeries> series;
  for (const Times& run : runs) series.push_back(distribution(run));
  return plot_figure(title, kMsAxis, {"% no longer than"}, series, PlotMark::kLine, distribution_table(runs));
}

std::string distributions(const std::vector<const RunData*>& runs) {
  const std::pair<const char*, TimeOf> kinds[] = {
      {"To the first token (TTFT)", [](const RunRequest& of) { return of.ttft(); }},
      {"Per further token (TPOT)", [](const RunRequest& of) { return of.tpot; }},
      {"To the last token (E2E)", [](const RunRequest& of) { return of.e2e(); }}};
  std::string out;
  for (const auto& [title, time_of] : kinds) {
    std::vector<Times> times;
    for (const RunData* run : runs) times.push_back(times_of(*run, time_of));
    out += distribution_figure(title, std::move(times));
  }
  std::vector<Times> gaps;
  for (const RunData* run : runs) {
    gaps.push_back({run->name, run->gaps});
    std::sort(gaps.back().sorted.begin(), gaps.back().sorted.end());
  }
  const bool any = std::ranges::any_of(gaps, [](const Times& each) { return !each.sorted.empty(); });
  return any ? out + distribution_figure("Between two tokens (ITL)", std::move(gaps)) : out;
}

// ---- requests over time ----

Nanos elapsed_of(const RunData& run) { return std::max<Nanos>(1, static_cast<Nanos>(run.seconds * 1e9)); }

std::string times_by_arrival(const RunData& run) {
  PlotSeries series[] = {{"to the first token", {}}, {"to the last token", {}}};
  for (const RunRequest& request : run.records) {
    if (!request.finished) continue;
    series[0].points.emplace_back(as_seconds(request.arrival), as_ms(request.ttft()));
    series[1].points.emplace_back(as_seconds(request.arrival), as_ms(request.e2e()));
  }
  return plot_figure("Times by arrival", kTimeAxis, kMsAxis, series, PlotMark::kDots);
}

std::string open_requests(const RunData& run) {
  TimeParts open(elapsed_of(run));
  TimeParts streaming(elapsed_of(run));
  for (const RunRequest& request : run.records) {
    if (request.arrival < 0 || request.refused) continue;
    // One that had not ended was open until the end.
    open.add_span(request.arrival, request.end < 0 ? elapsed_of(run) : request.end);
    if (request.finished) streaming.add_span(request.first, request.end);
  }
  const PlotSeries series[] = {{"open", open.per_second()}, {"of them streaming", streaming.per_second()}};
  return plot_figure("Requests", kTimeAxis, {"requests"}, series, PlotMark::kLine);
}

std::string attainment_by_arrival(const RunData& run) {
  if (!run.slo.any()) return {};
  TimeParts good(elapsed_of(run));
  TimeParts all(elapsed_of(run));
  for (const RunRequest& request : run.records) {
    if (request.arrival < 0) continue;
    all.add(request.arrival, 1);
    good.add(request.arrival, request.meets(run.slo) ? 1 : 0);
  }
  PlotSeries series{"attainment", {}};
  const auto places = all.per_second();
  for (size_t i = 0; i < places.size(); ++i) {
    if (all.sums()[i] > 0) series.points.emplace_back(places[i].first, 100 * good.sums()[i] / all.sums()[i]);
  }
  return plot_figure("Objectives met, by arrival", kTimeAxis, {"% of requests"}, {&series, 1},
                     PlotMark::kLine);
}

std::string output_rates(const std::vector<const RunData*>& runs) {
  std::vector<PlotSeries> series;
  for (const RunData* run : runs) {
    if (!run->output_rate.empty()) series.push_back({run->name, run->output_rate});
  }
  return plot_figure("Output tokens per second", kTimeAxis, {"tokens/s"}, series, PlotMark::kLine);
}

// ---- the scheduler over time ----

using Bucket = sim::Timeline::Bucket;

/// `value`: nullopt where there is nothing to say.
PlotSeries over_time(const RunData& run, std::string name,
                     const std::function<std::optional<double>(const Bucket&)>& value) {
  PlotSeries out{std::move(name), {}};
  const double length = as_seconds(run.timeline.length());
  for (size_t i = 0; i < run.timeline.buckets().size(); ++i) {
    const Bucket& bucket = run.timeline.buckets()[i];
    const auto at = value(bucket);
    if (!at) continue;
    // The last bucket ends with the run.
    const double begin = length * static_cast<double>(i);
    out.points.emplace_back((begin + std::min(begin + length, std::max(begin, run.seconds))) / 2, *at);
  }
  return out;
}

std::function<std::optional<double>(const Bucket&)> mean_of(double Bucket::*sum, double factor) {
  return [=](const Bucket& bucket) -> std::optional<double> {
    if (bucket.covered == 0) return std::nullopt;
    return factor * bucket.mean(sum);
  };
}

std::string scheduler_over_time(const RunData& run) {
  if (run.timeline.buckets().empty()) return {};
  const PlotSeries queue[] = {over_time(run, "running", mean_of(&Bucket::running, 1)),
                              over_time(run, "waiting", mean_of(&Bucket::waiting, 1)),
                              over_time(run, "most waiting", [](const Bucket& bucket) {
                                return std::optional(bucket.most_waiting);
                              })};
  std::vector<PlotSeries> pool = {over_time(run, "held", mean_of(&Bucket::held, 100))};
  if (run.has_cached) {
    pool.push_back(over_time(run, "cached", mean_of(&Bucket::cached, 100)));
    pool.push_back(over_time(run, "free", [](const Bucket& bucket) -> std::optional<double> {
      if (bucket.covered == 0) return std::nullopt;
      return std::max(0.0, 100 * (1 - bucket.mean(&Bucket::held) - bucket.mean(&Bucket::cached)));
    }));
  }
  const PlotSeries hits = over_time(run, "hits", [](const Bucket& bucket) -> std::optional<double> {
    if (bucket.queried_tokens == 0) return std::nullopt;
    return percent(bucket.hit_tokens, bucket.queried_tokens);
  });
  const double length = as_seconds(run.timeline.length());
  const PlotSeries preempted = over_time(run, "preemptions", [&](const Bucket& bucket) {
    return std::optional(static_cast<double>(bucket.preemptions) / length);
  });
  return plot_figure("Queue and batch", kTimeAxis, {"sequences"}, queue, PlotMark::kLine) +
         plot_figure("K/V pool", kTimeAxis, {"% of the blocks"}, pool, PlotMark::kLine) +
         plot_figure("Prefix hits", kTimeAxis, {"% of the prompt tokens looked up"}, {&hits, 1},
                     PlotMark::kLine) +
         plot_figure("Preemptions", kTimeAxis, {"per second"}, {&preempted, 1}, PlotMark::kLine);
}

// ---- hits by depth ----

/// The positions [begin, end) of prompts, in powers of two from 16 on.
struct DepthPart {
  uint64_t begin = 0;
  uint64_t end = 16;
};

std::vector<DepthPart> depth_parts(const std::vector<const RunData*>& runs) {
  uint64_t longest = 0;
  for (const RunData* run : runs) {
    for (const RunRequest& request : run->records) {
      if (request.cached_tokens) longest = std::max<uint64_t>(longest, request.prompt_tokens);
    }
  }
  std::vector<DepthPart> parts;
  for (DepthPart part; part.begin < longest; part = {part.end, 2 * part.end}) parts.push_back(part);
  return parts;
}

std::string short_count(uint64_t count) {
  return count >= 1024 && count % 1024 == 0 ? fmt::format("{}k", count / 1024) : std::to_string(count);
}

std::string hits_by_depth(const std::vector<const RunData*>& runs) {
  const std::vector<DepthPart> parts = depth_parts(runs);
  if (parts.empty()) return {};
  std::vector<std::string> names;
  for (const DepthPart& part : parts) names.push_back(short_count(part.begin) + "+");
  std::vector<PlotSeries> series;
  for (const RunData* run : runs) {
    std::vector<uint64_t> tokens(parts.size());
    std::vector<uint64_t> hits(parts.size());
    for (const RunRequest& request : run->records) {
      if (!request.cached_tokens) continue;
      const auto within = [](uint64_t count, const DepthPart& part) {
        return std::min(std::max(count, part.begin), part.end) - part.begin;
      };
      for (size_t i = 0; i < parts.size() && parts[i].begin < request.prompt_tokens; ++i) {
        tokens[i] += within(request.prompt_tokens, parts[i]);
        hits[i] += within(std::min(*request.cached_tokens, request.prompt_tokens), parts[i]);
      }
    }
    PlotSeries of{run->name, {}};
    for (size_t i = 0; i < parts.size(); ++i) {
      if (tokens[i] > 0) of.points.emplace_back(static_cast<double>(i), percent(hits[i], tokens[i]));
    }
    if (!of.points.empty()) series.push_back(std::move(of));
  }
  return bar_figure("Prefix hits by depth", names, {"% of the prompt tokens from this position on"}, series);
}

}  // namespace

std::string run_plots(const RunData& run, const RunData* other) {
  std::vector<const RunData*> runs = {&run};
  if (other != nullptr) runs.push_back(other);
  std::string out = "<div class=\"plots\">\n" + times_by_arrival(run) + distributions(runs) +
                    output_rates(runs) + open_requests(run) + attainment_by_arrival(run) +
                    scheduler_over_time(run) + hits_by_depth(runs) + "</div>\n";
  if (run.timeline.buckets().empty()) {
    out += fmt::format(
        "<p class=\"quiet\">Queue, pool, prefix hits and preemptions over time are not known: {}.</p>\n",
        html_text(run.no_timeline));
  }
  return out;
}

std::string common_plots(const std::vector<const RunData*>& runs) {
  return "<div class=\"plots\">\n" + distributions(runs) + output_rates(runs) + hits_by_depth(runs) +
         "</div>\n";
}

}  // namespace quire::bench
