#include "bench/load_page.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "base/amounts.h"
#include "bench/plot.h"

namespace quire::bench {
namespace {

constexpr std::string_view kHead = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<title>quire: a server under load</title>
<style>
:root {
  color-scheme: light dark;
  --page: #f6f5f1; --panel: #ffffff; --ink: #1d2327; --quiet: #5c666d; --line: #e4e2db; --alarm: #b3261e;
  --s0: #0072b2; --s1: #c05a00; --s2: #00805c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181b; --panel: #1c2226; --ink: #e8e6e1; --quiet: #a2abb1; --line: #30383e; --alarm: #ff8a80;
    --s0: #56b4e9; --s1: #f0a04b; --s2: #1fb58a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 20px 16px; max-width: 1100px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
h1 { font-size: 22px; line-height: 1.25; margin: 0 0 2px; font-weight: 650; }
h2 { font-size: 16px; margin: 20px 0 6px; font-weight: 650; }
p { margin: 0 0 6px; }
.quiet { color: var(--quiet); }
.alarm { color: var(--alarm); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 14px 0; }
.figures div, figure, .panel { background: var(--panel); border-radius: 8px; padding: 10px 14px; }
.figures b { display: block; font-size: 20px; line-height: 1.3; }
.panel { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th { font-weight: 600; }
td, th { padding: 3px 0 3px 8px; text-align: right; }
td:first-child, th:first-child { text-align: left; padding-left: 0; }
tr + tr > * { border-top: 1px solid var(--line); }
.asked td { text-align: left; overflow-wrap: anywhere; vertical-align: top; }
.asked td:first-child { white-space: nowrap; color: var(--quiet); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 12px; }
figure { margin: 0; }
figcaption b { margin-right: 8px; }
.key { white-space: nowrap; margin-right: 8px; }
.key i { display: inline-block; width: 14px; height: 4px; border-radius: 2px; margin-right: 5px;
  vertical-align: middle; background: currentColor; }
.key.s0 i { color: var(--s0); } .key.s1 i { color: var(--s1); } .key.s2 i { color: var(--s2); }
svg { display: block; width: 100%; height: auto; margin-top: 4px; overflow: visible; }
svg text { fill: var(--quiet); font-size: 11px; }
.grid { stroke: var(--line); stroke-width: 1; fill: none; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.dots { fill: none; stroke-width: 4; stroke-linecap: round; stroke-opacity: 0.65; }
path.s0 { stroke: var(--s0); } path.s1 { stroke: var(--s1); } path.s2 { stroke: var(--s2); }
.line.s1 { stroke-dasharray: 7 3; } .line.s2 { stroke-dasharray: 2 3; }
</style>
</head>
<body>
)html";

double milliseconds(Nanos time) { return static_cast<double>(time) / 1e6; }
double seconds(Nanos time) { return static_cast<double>(time) / 1e9; }

/// For each time, the percentage of times that are not longer.
PlotSeries distribution(std::string name, std::vector<Nanos> times) {
  constexpr size_t kMostPoints = 200;
  PlotSeries out{std::move(name), {}};
  if (times.empty()) return out;
  std::sort(times.begin(), times.end());
  out.points.emplace_back(milliseconds(times.front()), 0);
  const size_t points = std::min(kMostPoints, times.size());
  for (size_t i = 1; i <= points; ++i) {
    const size_t rank = times.size() * i / points;
    out.points.emplace_back(milliseconds(times[rank - 1]),
                            100.0 * static_cast<double>(rank) / static_cast<double>(times.size()));
  }
  return out;
}

/// The load's time in equal parts.
class TimeParts {
 public:
  explicit TimeParts(Nanos elapsed)
      : elapsed_(elapsed), sums_(static_cast<size_t>(std::clamp(seconds(elapsed) * 10, 10.0, 80.0))) {}

  /// `amount` at a moment.
  void add(Nanos at, double amount) { sums_[part_of(at)] += amount; }
  /// Adds 1 for the duration of a span.
  void add_span(Nanos from, Nanos to) {
    for (size_t part = part_of(from); part <= part_of(to); ++part) {
      const Nanos begin = std::max(from, start_of(part));
      const Nanos end = std::min(to, start_of(part + 1));
      sums_[part] += seconds(std::max<Nanos>(0, end - begin));
    }
  }
  /// The amounts per second.
  PlotSeries series(std::string name) const {
    PlotSeries out{std::move(name), {}};
    const double length = seconds(elapsed_) / count();
    for (size_t part = 0; part < sums_.size(); ++part) {
      out.points.emplace_back((static_cast<double>(part) + 0.5) * length, sums_[part] / length);
    }
    return out;
  }

 private:
  double count() const { return static_cast<double>(sums_.size()); }
  size_t part_of(Nanos at) const {
    const double share = seconds(at) / seconds(elapsed_);
    return std::min<size_t>(static_cast<size_t>(std::max(0.0, share) * count()), sums_.size() - 1);
  }
  Nanos start_of(size_t part) const {
    return static_cast<Nanos>(static_cast<double>(elapsed_) * static_cast<double>(part) / count());
  }

  Nanos elapsed_;
  std::vector<double> sums_;
};

std::string plots(const LoadReport& report, std::span<const LoadSample> samples) {
  PlotSeries first{"to the first token", {}};
  PlotSeries whole{"to the last token", {}};
  std::vector<Nanos> ttft;
  std::vector<Nanos> tpot;
  std::vector<Nanos> gaps;
  TimeParts tokens(report.elapsed);
  TimeParts open(report.elapsed);
  TimeParts streaming(report.elapsed);
  for (const LoadSample& sample : samples) {
    open.add_span(sample.arrival, sample.end);
    if (!sample.ok()) continue;
    first.points.emplace_back(seconds(sample.arrival), milliseconds(sample.ttft()));
    whole.points.emplace_back(seconds(sample.arrival), milliseconds(sample.e2e()));
    ttft.push_back(sample.ttft());
    if (const auto each = sample.tpot()) tpot.push_back(*each);
    gaps.insert(gaps.end(), sample.gaps.begin(), sample.gaps.end());
    streaming.add_span(sample.first, sample.end);
    // Tokens that arrived together with the first have no gap.
    const double share = static_cast<double>(sample.tokens) / static_cast<double>(sample.gaps.size() + 1);
    Nanos at = sample.first;
    tokens.add(at, share);
    for (const Nanos gap : sample.gaps) tokens.add(at += gap, share);
  }
  const PlotAxis time{"seconds since the start"};
  const PlotAxis log_ms{.label = "milliseconds", .is_log = true};
  const PlotSeries by_arrival[] = {std::move(first), std::move(whole)};
  const PlotSeries distributions[] = {distribution("to the first token", std::move(ttft)),
                                      distribution("per further token", std::move(tpot)),
                                      distribution("between two tokens", std::move(gaps))};
  const PlotSeries rate[] = {tokens.series("tokens")};
  const PlotSeries running[] = {open.series("open"), streaming.series("of them streaming")};
  return plot_figure("Times by arrival", time, log_ms, by_arrival, PlotMark::kDots) +
         plot_figure("Distribution of times", log_ms, {"% no longer than"}, distributions, PlotMark::kLine) +
         plot_figure("Output tokens per second", time, {"tokens/s"}, rate, PlotMark::kLine) +
         plot_figure("Requests", time, {"requests"}, running, PlotMark::kLine);
}

std::string times_table(const LoadReport& report) {
  std::string out =
      "<h2>Times in milliseconds</h2>\n<div class=\"panel\"><table><tr><th></th><th>mean</th><th>p50</th>"
      "<th>p90</th><th>p99</th><th>max</th></tr>\n";
  const std::pair<const char*, const sim::Percentiles*> rows[] = {{"To the first token (TTFT)", &report.ttft},
                                                                  {"Per further token (TPOT)", &report.tpot},
                                                                  {"Between two tokens (ITL)", &report.itl},
                                                                  {"To the last token (E2E)", &report.e2e}};
  for (const auto& [name, of] : rows) {
    out += fmt::format("<tr><td>{}</td>", name);
    for (const Nanos time : {of->mean, of->p50, of->p90, of->p99, of->max}) {
      out += fmt::format("<td>{:.1f}</td>", milliseconds(time));
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string figures(const LoadReport& report) {
  const auto figure = [](const std::string& value, const std::string& name) {
    return fmt::format("<div><b>{}</b>{}</div>\n", value, name);
  };
  std::string out = "<div class=\"figures\">\n";
  out += figure(fmt::format("{:.1f}", report.per_second(report.output_tokens)), "output tokens/s");
  out += figure(fmt::format("{:.2f}", report.per_second(report.finished)), "requests/s");
  if (report.slo.any()) {
    out += figure(fmt::format("{:.2f}", report.per_second(report.good)),
                  fmt::format("of them within the objectives ({} of {})", report.good, report.finished));
  }
  out += figure(fmt::format("{:.2f} s", report.seconds()), "from start to end");
  out += figure(with_commas(report.prompt_tokens), "prompt tokens");
  out += figure(with_commas(report.output_tokens),
                report.tokens_said ? "output tokens" : "pieces of output (the server did not count tokens)");
  return out + "</div>\n";
}

}  // namespace

std::string load_page_failures(const LoadReport& report) {
  std::string out;
  if (report.unfinished > 0) {
    out += fmt::format("<p class=\"alarm\">Interrupted: {} of {} requests had not ended.</p>\n",
                       report.unfinished, report.requests);
  }
  for (const LoadErrors& each : report.errors) {
    out += fmt::format("<p class=\"alarm\">{} failed: {}</p>\n", each.count, html_text(each.example));
  }
  if (report.short_answers > 0) {
    out +=
        fmt::format("<p class=\"alarm\">{} answers were shorter than asked for.</p>\n", report.short_answers);
  }
  return out;
}

FileKind load_page_kind() { return {"page of quire bench serve", kHead.substr(0, kHead.find("</title>"))}; }

std::string load_page_head(std::string_view title) {
  return fmt::format("{}<h1>{}</h1>\n", kHead, html_text(title));
}

std::string load_page_facts(const LoadFacts& facts) {
  std::string out = "<h2>Settings</h2>\n<div class=\"panel\"><table class=\"asked\">\n";
  for (const auto& [name, value] : facts) {
    out += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", html_text(name), html_text(value));
  }
  return out + "</table></div>\n</body>\n</html>\n";
}

std::string load_page(const LoadFacts& facts, const LoadReport& report, std::span<const LoadSample> samples) {
  std::string out = load_page_head("A server under load");
  out += fmt::format("<p class=\"quiet\">{} of {} requests finished, {} failed</p>\n",
                     with_commas(report.finished), with_commas(report.requests), with_commas(report.failed));
  out += load_page_failures(report) + figures(report);
  out += "<div class=\"plots\">\n" + plots(report, samples) + "</div>\n";
  return out + times_table(report) + load_page_facts(facts);
}

}  // namespace quire::bench
