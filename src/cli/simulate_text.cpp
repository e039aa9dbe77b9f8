#include "cli/simulate_text.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/amounts.h"
#include "cli/sim_options.h"
#include "cli/text_table.h"
#include "record/display_text.h"

namespace quire::cli {
namespace {

double as_seconds(Nanos time) { return static_cast<double>(time) / 1e9; }

}  // namespace

void print_step(const sim::Simulation& simulation) {
  const control::StepStats& stats = simulation.stats();
  fmt::print("{:>6} {:>10.3f} {:>8} {:>8} {:>8} {:>7} {:>7.1f} {:>9.1f} {:>10} {:>7}\n", stats.step,
             as_seconds(simulation.now()), stats.running, stats.waiting, stats.prefill_tokens,
             stats.decode_tokens, percent(stats.blocks_referenced, stats.blocks_total),
             percent(stats.blocks_shared, stats.blocks_total), stats.total_preemptions,
             simulation.totals().finished);
}

void print_summary(const sim::SimulationReport& report, const sim::SimulationConfig& config,
                   const std::vector<std::string>& refusals, const sim::Slo& slo,
                   const std::optional<HitBound>& bound) {
  const sim::SimulationTotals& totals = report.totals;
  const double elapsed = std::max(1e-9, as_seconds(report.elapsed));
  const auto line = [](const char* name, const std::string& value) {
    fmt::print("{:<22} {}\n", name, value);
  };
  line("times of steps", sim::cost_text(config.cost));
  if (const backend::sim::RooflineCost* const of = config.cost.roofline()) {
    line("memory", fmt::format("{} of weights; {} blocks of {} tokens, {} each: {}",
                               human_bytes(of->weight_bytes), with_commas(config.scheduler.num_blocks),
                               config.scheduler.block_size, human_bytes(of->block_bytes),
                               human_bytes(of->block_bytes * config.scheduler.num_blocks)));
  }
  line("requests",
       fmt::format("{} finished, {} refused", with_commas(totals.finished), with_commas(totals.refused)));
  if (report.unfinished() > 0) {
    line("interrupted", fmt::format("{} of {} requests had not ended", with_commas(report.unfinished()),
                                    with_commas(report.requests)));
  }
  for (size_t i = 0; i < refusals.size(); ++i) line(i == 0 ? "refused" : "", refusals[i]);
  line("virtual time", fmt::format("{:.3f} s, {:.3f} s of it in {}", elapsed, as_seconds(totals.busy),
                                   record::plural(totals.steps, "step")));
  line("throughput", fmt::format("{:.1f} output tokens/s, {:.2f} requests/s",
                                 static_cast<double>(report.output_tokens) / elapsed,
                                 static_cast<double>(totals.finished) / elapsed));
  line("tokens", fmt::format("{} in, {} out; computed {} prefill, {} decode",
                             with_commas(report.prompt_tokens), with_commas(report.output_tokens),
                             with_commas(totals.prefill_tokens), with_commas(totals.decode_tokens)));
  line("prefix hits",
       fmt::format("{:.1f} % of {} prompt tokens",
                   percent(report.last.total_prefix_hit_tokens, report.last.total_prefix_queried_tokens),
                   with_commas(report.last.total_prefix_queried_tokens)));
  if (bound) {
    const auto share = [&](uint64_t tokens) {
      return percent(tokens, report.last.total_prefix_queried_tokens);
    };
    line("",
         fmt::format("at most {:.1f} % with this pool, if evictions knew the future; {:.1f} % without any",
                     share(bound->pool), share(bound->unbounded)));
    line("", fmt::format("of the work of prompts, {:.1f} % saved; at most {:.1f} % with this pool",
                         100 * bound->work.saved / std::max(1.0, bound->work.prompts),
                         100 * bound->work.saveable / std::max(1.0, bound->work.prompts)));
  }
  const auto busy_micros = static_cast<uint64_t>(totals.busy) / 1000;
  line("K/V blocks", fmt::format("{} of {} at most, {:.1f} % on average", with_commas(totals.peak_blocks),
                                 with_commas(config.scheduler.num_blocks),
                                 percent(totals.block_micros, busy_micros * config.scheduler.num_blocks)));
  line("running", fmt::format("{} at most, {:.1f} on average; {} waiting at most", totals.peak_running,
                              percent(totals.running_micros, busy_micros) / 100, totals.peak_waiting));
  line("preemptions",
       fmt::format("{}; {} blocks to the host, {} back", with_commas(report.last.total_preemptions),
                   with_commas(totals.moved_out), with_commas(totals.moved_blocks - totals.moved_out)));
  line("evictions", with_commas(report.last.total_evictions));
  if (totals.finished > 0) {
    line("deadlines",
         fmt::format("{:.1f} % of first tokens in time", percent(report.in_time, totals.finished)));
  }
  if (slo.any() && report.ended() > 0) {
    line("objectives", fmt::format("{} of {} requests{} met {}: {:.2f} % ({}), {:.2f} good requests/s",
                                   with_commas(report.good), with_commas(report.ended()),
                                   report.unfinished() > 0 ? " that had ended" : "", slo.text(),
                                   percent(report.good, report.ended()),
                                   slo.attained(report.good, report.ended()) ? "enough" : "too few",
                                   report.per_second(report.good)));
  }

  const std::pair<const char*, sim::Percentiles> times[] = {{"waiting to be admitted", report.queue},
                                                            {"to the first token", report.ttft},
                                                            {"per further token", report.tpot},
                                                            {"to the last token", report.e2e}};
  if (totals.finished > 0) print_times(times);
}

void print_digests(const sim::SimulationReport& report) {
  fmt::print("\ndigest {:016x}\ndecisions {:016x}\n", report.digest, report.decision_digest);
}

void print_groups(const char* name, std::vector<sim::GroupOutcome> groups, const sim::Slo& slo) {
  constexpr size_t kMost = 12;
  if (groups.size() < 2) return;
  std::ranges::stable_sort(groups, std::greater(), &sim::GroupOutcome::requests);
  TextTable table{{name, "requests", "refused", "tokens", "TTFT ms", "p99", "TPOT ms", "p99", "E2E ms", "p99",
                   "in time %"},
                  {}};
  if (slo.any()) table.head.emplace_back("met %");
  for (const sim::GroupOutcome& of : std::span(groups).first(std::min(kMost, groups.size()))) {
    using sim::Percentiles;
    const auto ms = [](const Percentiles& times, Nanos Percentiles::*which) {
      return times.any ? fmt::format("{:.1f}", static_cast<double>(times.*which) / 1e6) : std::string("-");
    };
    std::vector<std::string>& row = table.rows.emplace_back();
    row = {std::to_string(of.of),
           with_commas(of.requests),
           with_commas(of.refused),
           with_commas(of.output_tokens),
           ms(of.ttft, &Percentiles::mean),
           ms(of.ttft, &Percentiles::p99),
           ms(of.tpot, &Percentiles::mean),
           ms(of.tpot, &Percentiles::p99),
           ms(of.e2e, &Percentiles::mean),
           ms(of.e2e, &Percentiles::p99),
           of.finished > 0 ? fmt::format("{:.1f}", percent(of.in_time, of.finished)) : "-"};
    if (slo.any()) row.push_back(fmt::format("{:.1f}", percent(of.good, of.ended())));
  }
  fmt::print("\n{}", table.text(1));
  if (groups.size() > kMost) {
    fmt::print("and {} more with fewer requests; --json has all\n", with_commas(groups.size() - kMost));
  }
}

}  // namespace quire::cli
