#include "cli/run_columns.h"

#include <fmt/format.h>

#include "base/amounts.h"
#include "cli/sim_options.h"

namespace quire::cli {
namespace {

std::string number(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }
std::string ms(Nanos time) { return number(static_cast<double>(time) / 1e6, 1); }

}  // namespace

std::vector<Column> columns_of(const sim::Slo& slo, bool in_file) {
  std::vector<Column> columns;
  const auto add = [&](const char* head, const char* name, auto text) {
    columns.push_back({head, name, text});
  };
  add("requests/s", "requests_per_second",
      [](const RunResult& run) { return number(run.report.per_second(run.report.totals.finished), 2); });
  add("tokens/s", "output_tokens_per_second",
      [](const RunResult& run) { return number(run.report.per_second(run.report.output_tokens), 1); });
  const auto times = [&](const char* mean_head, const char* mean, const char* p99_head, const char* p99,
                         sim::Percentiles sim::SimulationReport::*of) {
    const auto time = [of](Nanos sim::Percentiles::*which) {
      return [of, which](const RunResult& run) {
        const sim::Percentiles& found = run.report.*of;
        return found.any ? ms(found.*which) : std::string();
      };
    };
    add(mean_head, mean, time(&sim::Percentiles::mean));
    add(p99_head, p99, time(&sim::Percentiles::p99));
  };
  times("TTFT ms", "ttft_mean_ms", "p99", "ttft_p99_ms", &sim::SimulationReport::ttft);
  times("TPOT ms", "tpot_mean_ms", "p99", "tpot_p99_ms", &sim::SimulationReport::tpot);
  times("E2E ms", "e2e_mean_ms", "p99", "e2e_p99_ms", &sim::SimulationReport::e2e);
  add("hits %", "prefix_hit_percent", [](const RunResult& run) {
    const control::StepStats& last = run.report.last;
    return number(percent(last.total_prefix_hit_tokens, last.total_prefix_queried_tokens), 1);
  });
  add("preempted", "preemptions",
      [](const RunResult& run) { return std::to_string(run.report.last.total_preemptions); });
  add("refused", "refused", [](const RunResult& run) { return std::to_string(run.report.totals.refused); });
  if (slo.any()) {
    add("met %", "attainment_percent",
        [](const RunResult& run) { return number(percent(run.report.good, run.report.requests), 1); });
    add("good/s", "good_requests_per_second",
        [](const RunResult& run) { return number(run.report.per_second(run.report.good), 2); });
  }
  if (!in_file) return columns;
  add("", "requests", [](const RunResult& run) { return std::to_string(run.report.requests); });
  add("", "finished", [](const RunResult& run) { return std::to_string(run.report.totals.finished); });
  add("", "seconds", [](const RunResult& run) { return number(run.report.seconds(), 3); });
  add("", "steps", [](const RunResult& run) { return std::to_string(run.report.totals.steps); });
  add("", "evictions", [](const RunResult& run) { return std::to_string(run.report.last.total_evictions); });
  add("", "peak_blocks", [](const RunResult& run) { return std::to_string(run.report.totals.peak_blocks); });
  add("", "peak_waiting",
      [](const RunResult& run) { return std::to_string(run.report.totals.peak_waiting); });
  add("", "in_time", [](const RunResult& run) { return std::to_string(run.report.in_time); });
  add("", "extrapolated_steps", [](const RunResult& run) { return std::to_string(run.report.extrapolated); });
  add("", "cost", [](const RunResult& run) { return cost_source(run.config.cost); });
  return columns;
}

}  // namespace quire::cli
