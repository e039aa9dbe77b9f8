#include "bench/fit_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/amounts.h"
#include "bench/plot.h"

namespace quire::bench {
namespace {

using backend::StepRecord;
using backend::StepWork;
using backend::sim::FittedCost;
using backend::sim::PhaseCost;

constexpr std::string_view kKinds[] = {"decode", "prefill", "mixed", "swap"};
constexpr double kMostPercent = 200;  // of the fitted time, that is drawn

double ms(double nanos) { return nanos / 1e6; }
double whole_of(const StepRecord& record) { return static_cast<double>(std::max<int64_t>(1, record.whole)); }

using Table = std::vector<std::vector<std::string>>;

/// The first row is the head.
std::string table_of(std::string_view name, const Table& rows) {
  std::string out =
      fmt::format("<div class=\"panel scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table>\n",
                  html_text(name));
  for (size_t i = 0; i < rows.size(); ++i) {
    out += "<tr>";
    const char* const cell = i == 0 ? "th" : "td";
    for (const std::string& text : rows[i]) out += fmt::format("<{0}>{1}</{0}>", cell, html_text(text));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

/// Steps of one kind, measured and fitted, against a count of their work.
template <class Count>
std::string times_plot(std::string_view title, std::string_view kind, std::string x_label,
                       const sim::Calibration& fit, std::span<const StepRecord> records, const Count& count) {
  std::array<PlotSeries, 2> series = {PlotSeries{"measured", {}}, PlotSeries{"fitted", {}}};
  for (size_t i = 0; i < records.size(); ++i) {
    if (backend::sim::step_kind(records[i].work) != kind) continue;
    const auto x = static_cast<double>(count(records[i].work));
    series[0].points.emplace_back(x, ms(whole_of(records[i])));
    series[1].points.emplace_back(x, ms(fit.fitted[i]));
  }
  const PlotAxis x{.label = std::move(x_label), .is_log = true, .least = 1};
  return plot_figure(title, x, {.label = "milliseconds", .is_log = true}, series, PlotMark::kDots);
}

std::string times_plots(const sim::Calibration& fit, std::span<const StepRecord> records) {
  const auto before = [](const StepWork& work) { return work.decode_context; };
  const auto all_tokens = [](const StepWork& work) { return work.tokens(); };
  const auto blocks = [](const StepWork& work) { return work.moved_blocks; };
  std::string out = "<div class=\"plots\">\n";
  out +=
      times_plot("Prompts alone, by their tokens", "prefill", "tokens in the step", fit, records, all_tokens);
  out += times_plot("Decoding, by the batch", "decode", "sequences that decode", fit, records,
                    [](const StepWork& work) { return work.decoding; });
  out += times_plot("Decoding, by the context", "decode", "tokens before those, of all sequences", fit,
                    records, before);
  out +=
      times_plot("Both in one step, by all tokens", "mixed", "tokens in the step", fit, records, all_tokens);
  out +=
      times_plot("Swaps, by the blocks", "swap", "blocks moved to the host and back", fit, records, blocks);
  return out + "</div>\n";
}

/// For each error, the share of steps that have no larger one.
PlotSeries errors_up_to(std::string name, std::vector<double> errors) {
  constexpr size_t kPoints = 100;
  PlotSeries out{std::move(name), {}};
  if (errors.empty()) return out;
  std::ranges::sort(errors);
  const size_t points = std::min(kPoints, errors.size());
  for (size_t i = 1; i <= points; ++i) {
    const size_t rank = errors.size() * i / points;
    out.points.emplace_back(errors[rank - 1],
                            100.0 * static_cast<double>(rank) / static_cast<double>(errors.size()));
  }
  return out;
}

std::string residual_plots(const sim::Calibration& fit, std::span<const StepRecord> records) {
  std::vector<PlotSeries> parts;
  std::vector<PlotSeries> sums;
  for (const std::string_view kind : kKinds) {
    PlotSeries part{std::string(kind), {}};
    std::vector<double> errors;
    for (size_t i = 0; i < records.size(); ++i) {
      if (backend::sim::step_kind(records[i].work) != kind) continue;
      const double percent = 100 * whole_of(records[i]) / fit.fitted[i];
      part.points.emplace_back(ms(fit.fitted[i]), std::min(kMostPercent, percent));
      errors.push_back(std::abs(percent - 100));
    }
    // Three series are as many as a plot has; the last one is shown with the swaps above.
    if (parts.size() == 3) break;
    parts.push_back(std::move(part));
    sums.push_back(errors_up_to(std::string(kind), std::move(errors)));
  }
  const PlotAxis fitted{.label = "fitted milliseconds", .is_log = true};
  const PlotAxis error{.label = "error in %", .is_log = true, .least = 0.1};
  return "<div class=\"plots\">\n" +
         plot_figure("Each step's time, in % of the fitted one (100: exact; 200: or more)", fitted, {"%"},
                     parts, PlotMark::kDots) +
         plot_figure("Errors of the steps above, and how many steps have no larger one", error,
                     {"% of the steps"}, sums, PlotMark::kLine) +
         "</div>\n";
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The same costs for one phase alone.
FittedCost only(FittedCost cost, bool device) {
  PhaseCost& other = device ? cost.host : cost.device;
  other = PhaseCost{.token = std::vector<double>(cost.knots.size())};
  return cost;
}

std::string error_table(const sim::Calibration& fit, std::span<const StepRecord> records) {
  const FittedCost device = only(fit.file.cost, true);
  const FittedCost host = only(fit.file.cost, false);
  Table rows = {{"steps", "number", "median error %", "p90 %", "bias %", "device %", "host %"}};
  for (const backend::sim::FitError& each : fit.file.errors) {
    std::vector<double> of_device;
    std::vector<double> of_host;
    for (const StepRecord& record : records) {
      if (backend::sim::step_kind(record.work) != each.kind) continue;
      const double whole = whole_of(record);
      const double measured = std::min(whole, static_cast<double>(record.compute + record.sample));
      const auto time = [&](const FittedCost& cost) {
        return static_cast<double>(cost.duration(record.work));
      };
      of_device.push_back(100 * std::abs(time(device) - measured) / whole);
      of_host.push_back(100 * std::abs(time(host) - (whole - measured)) / whole);
    }
    const auto text = [&](double value) { return each.steps == 0 ? "" : fmt::format("{:.1f}", value); };
    rows.push_back({each.kind, with_commas(each.steps), text(100 * each.median), text(100 * each.p90),
                    text(100 * each.bias), text(median_of(of_device)), text(median_of(of_host))});
  }
  return table_of("Errors", rows) +
         "<p class=\"quiet\">The first errors compare each step with a fit that did not see it. Device and "
         "host: "
         "the median error of each phase in the fit to all steps, in % of the whole step.</p>\n";
}

std::string cost_table(const FittedCost& cost) {
  Table rows = {{"costs", "device us", "host us"}};
  std::vector<double> host;
  PhaseCost::for_each_term(cost.host, [&](std::string_view, double each) { host.push_back(each); });
  size_t at = 0;
  const auto us = [](double nanos) { return fmt::format("{:.3f}", nanos / 1000); };
  PhaseCost::for_each_term(cost.device, [&](std::string_view name, double each) {
    std::string text(name);
    std::ranges::replace(text, '_', ' ');
    rows.push_back({text, us(each), us(host[at++])});
  });
  for (size_t i = 0; i < cost.knots.size(); ++i) {
    rows.push_back({fmt::format("a token from {} on", with_commas(cost.knots[i])), us(cost.device.token[i]),
                    us(cost.host.token[i])});
  }
  return table_of("Costs", rows);
}

std::string range_table(const FittedCost& cost) {
  Table rows = {{"of a step", "at least, if any", "at most"}};
  std::vector<uint64_t> least;
  StepWork::for_each_count(cost.least, [&](std::string_view, uint64_t count) { least.push_back(count); });
  StepWork::for_each_count(cost.most, [&](std::string_view name, uint64_t count) {
    std::string text(name);
    std::ranges::replace(text, '_', ' ');
    rows.push_back({text, with_commas(least[rows.size() - 1]), with_commas(count)});
  });
  return table_of("Ranges", rows);
}

std::string slow_text(const sim::Calibration& fit) {
  if (fit.slow.empty()) return "";
  double worst = 0;
  for (const sim::SlowSteps& each : fit.slow) worst = std::max(worst, each.factor);
  return fmt::format(
      "<p class=\"quiet\">{} of {} steps, at {} places, took far longer than such steps take (up to {:.1f} "
      "times) "
      "and were left out of the fit: something else ran. They are drawn.</p>\n",
      with_commas(fit.file.left_out), with_commas(fit.file.left_out + fit.file.steps),
      with_commas(fit.slow.size()), worst);
}

}  // namespace

std::string fit_page(const sim::Calibration& fit, std::span<const StepRecord> records,
                     const PageFacts& settings) {
  const backend::sim::CostFile& file = fit.file;
  std::string out = page_head("the time of a step", PageOf::kFit);
  out += fmt::format("<p class=\"quiet\">{} on {}</p>\n", html_text(file.cost.model),
                     html_text(file.cost.machine));
  PageFacts figures = {{with_commas(file.steps), "steps fitted"}, {with_commas(file.left_out), "left out"}};
  for (const backend::sim::FitError& each : file.errors) {
    figures.emplace_back(each.steps == 0 ? "none seen" : fmt::format("{:.1f} %", 100 * each.median),
                         fmt::format("median error, {}", each.kind));
  }
  out += page_figures(figures);
  out += slow_text(fit);
  out += page_part("Measured and fitted") + times_plots(fit, records);
  out += page_part("Deviations") + residual_plots(fit, records) + page_part("Errors") +
         error_table(fit, records);
  out += page_part("Costs") + cost_table(file.cost);
  out += page_part("Ranges: beyond, times are extrapolated") + range_table(file.cost);
  return out + page_end(settings);
}

}  // namespace quire::bench
