#include "bench/sweep_page.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "base/amounts.h"

namespace quire::bench {
namespace {

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) || value < 0) {
    return std::nullopt;
  }
  return value;
}

/// Where the runs of a sweep stand in its plots.
struct Places {
  size_t flag = 0;                  // the one along the x axis
  bool is_number = false;           // of its values
  std::vector<std::string> groups;  // its values, if they are no numbers
  std::vector<std::string> lines;   // the combinations of the other flags
  std::vector<double> x;            // of each run
  std::vector<size_t> line;         // of each run
};

size_t index_in(std::vector<std::string>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  const auto index = static_cast<size_t>(found - names.begin());
  if (found == names.end()) names.push_back(name);
  return index;
}

Places places_of(const SweepData& sweep) {
  Places out;
  for (size_t flag = 0; flag < sweep.flags.size() && !out.is_number; ++flag) {
    std::vector<std::string> values;
    for (const SweepRun& run : sweep.runs) index_in(values, run.values[flag]);
    out.is_number = values.size() > 1 &&
                    std::ranges::all_of(values, [](const auto& text) { return number_of(text).has_value(); });
    if (out.is_number) out.flag = flag;
  }
  for (const SweepRun& run : sweep.runs) {
    std::string name;
    for (size_t flag = 0; flag < sweep.flags.size(); ++flag) {
      if (flag != out.flag)
        name += fmt::format("{}{} {}", name.empty() ? "" : ", ", sweep.flags[flag], run.values[flag]);
    }
    out.line.push_back(index_in(out.lines, name));
    const std::string value = run.values.empty() ? "all" : run.values[out.flag];
    out.x.push_back(out.is_number ? *number_of(value) : static_cast<double>(index_in(out.groups, value)));
  }
  return out;
}

/// A plot of the sweep.
struct Figure {
  std::string title;
  PlotAxis y;
  std::function<std::optional<double>(const SweepRun&)> value;
};

void add_time_plots(std::vector<Figure>& out, const char* name, sim::Percentiles sim::SimulationReport::*of) {
  const std::pair<const char*, Nanos sim::Percentiles::*> which[] = {{"median", &sim::Percentiles::p50},
                                                                     {"99th of 100", &sim::Percentiles::p99}};
  for (const auto& [text, time] : which) {
    const auto member = time;
    out.push_back({fmt::format("{}, {}", name, text),
                   {.label = "milliseconds", .is_log = true},
                   [of, member](const SweepRun& run) -> std::optional<double> {
                     const sim::Percentiles& times = run.report->*of;
                     if (!times.any) return std::nullopt;
                     return static_cast<double>(times.*member) / 1e6;
                   }});
  }
}

std::vector<Figure> sweep_figures(const SweepData& sweep) {
  std::vector<Figure> out;
  for (size_t i = 0; i < sweep.more.size(); ++i) {
    out.push_back(
        {sweep.more[i], {sweep.more[i]}, [i](const SweepRun& run) { return std::optional(run.more[i]); }});
  }
  const size_t own = out.size();
  using Report = sim::SimulationReport;
  const auto add = [&](const char* title, const char* unit, double (*value)(const Report&)) {
    out.push_back(
        {title, {unit}, [value](const SweepRun& run) { return std::optional(value(*run.report)); }});
  };
  add("Output tokens per second", "tokens/s",
      [](const Report& of) { return of.per_second(of.output_tokens); });
  add("Requests per second", "requests/s",
      [](const Report& of) { return of.per_second(of.totals.finished); });
  add_time_plots(out, "To the first token (TTFT)", &Report::ttft);
  add_time_plots(out, "Per further token (TPOT)", &Report::tpot);
  add_time_plots(out, "To the last token (E2E)", &Report::e2e);
  if (sweep.slo.any()) {
    add("Objectives met", "% of requests", [](const Report& of) { return percent(of.good, of.requests); });
    add("Good requests per second", "requests/s", [](const Report& of) { return of.per_second(of.good); });
  }
  add("Prefix hits", "% of prompt tokens", [](const Report& of) {
    return percent(of.last.total_prefix_hit_tokens, of.last.total_prefix_queried_tokens);
  });
  add("Preemptions", "in all",
      [](const Report& of) { return static_cast<double>(of.last.total_preemptions); });
  add("Refused requests", "in all", [](const Report& of) { return static_cast<double>(of.totals.refused); });
  for (size_t i = own; i < out.size(); ++i) {
    out[i].value = [value = std::move(out[i].value)](const SweepRun& run) -> std::optional<double> {
      return run.report == nullptr ? std::nullopt : value(run);
    };
  }
  return out;
}

std::string plot_of(const SweepData& sweep, const Places& places, const Figure& figure) {
  std::vector<PlotSeries> series;
  for (const std::string& line : places.lines) series.push_back({line.empty() ? figure.y.label : line, {}});
  for (size_t i = 0; i < sweep.runs.size(); ++i) {
    const auto value = figure.value(sweep.runs[i]);
    if (value) series[places.line[i]].points.emplace_back(places.x[i], *value);
  }
  for (PlotSeries& each : series) std::ranges::sort(each.points);
  if (!places.is_number) {
    PlotAxis linear = figure.y;  // a bar's length is its value
    linear.is_log = false;
    return bar_figure(figure.title, places.groups, linear, series);
  }
  const auto [low, high] = std::ranges::minmax(places.x);
  constexpr double kLogFrom = 20;
  const PlotAxis x{
      .label = sweep.flags[places.flag], .is_log = low > 0 && high / low > kLogFrom, .least = low};
  return plot_figure(figure.title, x, figure.y, series, PlotMark::kLine);
}

}  // namespace

std::string sweep_page(const SweepData& sweep) {
  std::string out = page_head(sweep.title);
  out += fmt::format("<p class=\"quiet\">{} runs{}</p>\n", with_commas(sweep.runs.size()),
                     sweep.slo.any() ? ", objectives " + html_text(sweep.slo.text()) : "");
  out += page_complaints(sweep.complaints);
  if (!sweep.runs.empty()) {
    const Places places = places_of(sweep);
    out += "<div class=\"plots small\">\n";
    for (const Figure& figure : sweep_figures(sweep)) out += plot_of(sweep, places, figure);
    out += "</div>\n";
  }
  constexpr const char* kTitle = "All runs (times in milliseconds)";
  return out + page_part(kTitle) + "<div class=\"panel\">" + html_table(sweep.table, kTitle) + "</div>\n" +
         page_end(sweep.settings);
}

}  // namespace quire::bench
