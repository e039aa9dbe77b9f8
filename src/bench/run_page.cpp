#include "bench/run_page.h"

#include <optional>

#include <fmt/format.h>

#include "base/amounts.h"
#include "bench/plot.h"
#include "bench/run_comparison.h"

namespace quire::bench {
namespace {

std::string ms_text(Nanos time) { return fmt::format("{:.1f}", static_cast<double>(time) / 1e6); }

PageFacts tiles(const RunData& run) {
  PageFacts out{{fmt::format("{:.1f}", run.per_second(run.output_tokens)), "output tokens/s"},
                {fmt::format("{:.2f}", run.per_second(run.finished)), "requests/s"}};
  if (run.good) {
    out.emplace_back(fmt::format("{:.2f}", run.per_second(*run.good)),
                     fmt::format("of them within the objectives ({} of {})", with_commas(*run.good),
                                 with_commas(run.finished)));
    if (run.ended() > 0)
      out.emplace_back(
          fmt::format("{:.1f} %", percent(*run.good, run.ended())),
          fmt::format("of {} met {}: {}",
                      run.ended() < run.requests ? "the requests that had ended" : "all requests",
                      run.slo.text(), run.slo.attained(*run.good, run.ended()) ? "enough" : "too few"));
  }
  out.emplace_back(fmt::format("{:.2f} s", run.seconds), "from start to end");
  out.emplace_back(with_commas(run.prompt_tokens), "prompt tokens");
  out.emplace_back(with_commas(run.output_tokens),
                   run.tokens_said ? "output tokens" : "pieces of output (the server did not count tokens)");
  if (run.queried_tokens && run.hit_tokens) {
    out.emplace_back(fmt::format("{:.1f} %", percent(*run.hit_tokens, *run.queried_tokens)),
                     "of prompt tokens were prefix hits");
  }
  if (run.queried_tokens && run.hit_bound) {
    out.emplace_back(fmt::format("{:.1f} %", percent(*run.hit_bound, *run.queried_tokens)),
                     "would be hits if evictions knew the future");
  }
  if (run.preemptions) out.emplace_back(with_commas(*run.preemptions), "preemptions");
  if (run.evictions) out.emplace_back(with_commas(*run.evictions), "evictions");
  return out;
}

std::string times_table(const RunData& run) {
  PlotTable table{{"", "mean", "p50", "p90", "p99", "max"}, {}};
  const auto add = [&](const char* name, const std::optional<sim::Percentiles>& of) {
    if (!of) return;
    table.rows.push_back(
        {name, ms_text(of->mean), ms_text(of->p50), ms_text(of->p90), ms_text(of->p99), ms_text(of->max)});
  };
  add("Waiting to be admitted", run.queue);
  add("To the first token (TTFT)", run.ttft);
  add("Per further token (TPOT)", run.tpot);
  add("Between two tokens (ITL)", run.itl);
  add("To the last token (E2E)", run.e2e);
  if (table.rows.empty()) return {};
  return page_part("Times in milliseconds") + "<div class=\"panel\">" +
         html_table(table, "Times in milliseconds") + "</div>\n";
}

/// If there are several.
std::string groups_table(const RunData& run, std::string_view kind, std::string_view title) {
  PlotTable table{{std::string(kind), "requests", run.refused, "tokens", "TTFT ms", "p99", "TPOT ms", "p99",
                   "E2E ms", "p99"},
                  {}};
  if (run.good) table.head.emplace_back("met %");
  for (const RunGroup& group : run.groups) {
    if (group.kind != kind) continue;
    const sim::GroupOutcome& of = group.outcome;
    const auto ms = [](const sim::Percentiles& times, Nanos sim::Percentiles::*which) {
      return times.any ? ms_text(times.*which) : std::string("-");
    };
    using sim::Percentiles;
    table.rows.push_back({std::to_string(of.of), with_commas(of.requests), with_commas(of.refused),
                          with_commas(of.output_tokens), ms(of.ttft, &Percentiles::mean),
                          ms(of.ttft, &Percentiles::p99), ms(of.tpot, &Percentiles::mean),
                          ms(of.tpot, &Percentiles::p99), ms(of.e2e, &Percentiles::mean),
                          ms(of.e2e, &Percentiles::p99)});
    if (run.good) table.rows.back().push_back(fmt::format("{:.1f}", percent(of.good, of.ended())));
  }
  if (table.rows.size() < 2) return {};
  constexpr size_t kMost = 200;
  std::string more;
  if (table.rows.size() > kMost) {
    more = fmt::format("<p class=\"quiet\">and {} more</p>\n", with_commas(table.rows.size() - kMost));
    table.rows.resize(kMost);
  }
  return page_part(title) + "<div class=\"panel\">" + html_table(table, title) + more + "</div>\n";
}

/// With the run's name before each.
std::string named_complaints(const RunData& run) {
  std::vector<std::string> out;
  for (const std::string& each : run.complaints) out.push_back(fmt::format("{}: {}", run.name, each));
  return page_complaints(out);
}

}  // namespace

std::string run_page(const RunData& run, const RunData* other) {
  std::string out = page_head(run.title);
  out += fmt::format("<p class=\"quiet\">{} of {} requests finished, {} {}</p>\n", with_commas(run.finished),
                     with_commas(run.requests), with_commas(run.not_finished), run.refused);
  out += page_complaints(run.complaints);
  if (other != nullptr) out += named_complaints(*other);
  out += page_figures(tiles(run));
  if (other != nullptr) out += comparison_html(compare(*other, run));
  out += run_plots(run, other) + times_table(run) + groups_table(run, "tenant", "By tenant") +
         groups_table(run, "priority", "By priority");
  return out + page_end(run.settings);
}

std::string comparison_page(const RunData& a, const RunData& b) {
  std::string out = page_head("Two runs compared");
  for (const RunData* run : {&a, &b}) {
    out += fmt::format("<p class=\"quiet\">{}: {}, {} of {} requests finished</p>\n", html_text(run->name),
                       html_text(run->title), with_commas(run->finished), with_commas(run->requests));
  }
  out += named_complaints(a) + named_complaints(b);
  out += comparison_html(compare(a, b)) + common_plots({&a, &b});
  PageFacts settings;
  for (const RunData* run : {&a, &b}) {
    for (const auto& [name, value] : run->settings) {
      settings.emplace_back(fmt::format("{}: {}", run->name, name), value);
    }
  }
  return out + page_end(settings);
}

}  // namespace quire::bench
