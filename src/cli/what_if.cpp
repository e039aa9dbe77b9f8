#include "cli/what_if.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/output_file.h"
#include "bench/sweep_page.h"
#include "cli/message_reader.h"
#include "cli/run_columns.h"
#include "cli/simulate_options.h"
#include "cli/terminal.h"
#include "cli/text_table.h"
#include "cli/time_notes.h"
#include "cli/what_if_runs.h"
#include "sim/capacity_search.h"
#include "sim/report_json.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

constexpr FileKind kSweepJson{"sweep of quire simulate", "{\"sweep\":"};
constexpr FileKind kTableCsv{"table of quire simulate", "run,"};

// ---- tables ----

/// A line of the table: a combination, cells that are not of a run, and maybe a run. An empty cell is one
/// without a figure: in a table for people "-".
struct Line {
  const Combination* values = nullptr;
  std::vector<std::string> more;
  const RunResult* run = nullptr;
  std::vector<double> figures;  // the numbers of `more`
};

TextTable table_of(const WhatIf& asked, const std::vector<std::string>& more, const std::vector<Line>& lines,
                   bool in_file) {
  TextTable table;
  if (in_file) table.head.emplace_back("run");
  for (const sim::SweepAxis& axis : asked.axes) table.head.push_back(axis.flag);
  table.head.insert(table.head.end(), more.begin(), more.end());
  const std::vector<Column> columns = columns_of(asked.slo, in_file);
  for (const Column& column : columns) table.head.emplace_back(in_file ? column.name : column.head);
  for (const Line& line : lines) {
    std::vector<std::string>& row = table.rows.emplace_back();
    if (in_file) row.push_back(std::to_string(table.rows.size()));
    row.insert(row.end(), line.values->begin(), line.values->end());
    row.insert(row.end(), line.more.begin(), line.more.end());
    for (const Column& column : columns) row.push_back(line.run == nullptr ? "" : column.text(*line.run));
    if (!in_file) std::ranges::replace(row, std::string(), std::string("-"));
  }
  return table;
}

json::object flags_json(const WhatIf& asked, const Combination& values) {
  json::object out;
  for (size_t i = 0; i < values.size(); ++i) out[asked.axes[i].flag] = values[i];
  return out;
}

json::object json_head(const WhatIf& asked) {
  json::array sweep;
  for (const sim::SweepAxis& axis : asked.axes) {
    sweep.push_back({{"flag", axis.flag}, {"values", json::value_from(axis.values)}});
  }
  return {{"sweep", std::move(sweep)},
          {"arguments", json::value_from(asked.arguments)},
          {"slo", sim::slo_json(asked.slo)}};
}

/// How many runs, or searches, there are, and how many had ended when there was an interrupt or all had.
struct Tally {
  const char* what;  // "runs"
  size_t ended = 0;
  size_t all = 0;

  size_t unfinished() const { return all - ended; }
  std::string text() const { return fmt::format("{} of {} {} had not ended", unfinished(), all, what); }
  void add_to(json::object& root) const {
    root["interrupted"] = unfinished() > 0;
    root["unfinished"] = unfinished();
  }
};

/// The page of all runs. `heads`: of the cells of a line that are not of a run.
void write_page(const WhatIf& asked, std::string title, const std::vector<std::string>& heads,
                const std::vector<Line>& lines, std::vector<std::string> complaints, const Tally& tally) {
  if (asked.html_file.empty()) return;
  bench::SweepData page{.title = std::move(title), .slo = asked.slo, .settings = asked.settings};
  for (const sim::SweepAxis& axis : asked.axes) page.flags.push_back(axis.flag);
  for (size_t i = 0; i < heads.size(); ++i) {
    page.more.push_back(fmt::format("{}: {} of the seeds", heads.front(), i == 0 ? "median" : heads[i]));
  }
  for (const Line& line : lines) {
    page.runs.push_back({*line.values, line.figures, line.run == nullptr ? nullptr : &line.run->report});
  }
  TextTable table = table_of(asked, heads, lines, false);
  page.table = {std::move(table.head), std::move(table.rows)};
  page.complaints = std::move(complaints);
  if (tally.unfinished() > 0) page.complaints.push_back(fmt::format("Interrupted: {}.", tally.text()));
  write_output_file(asked.html_file, bench::page_kind(), bench::sweep_page(page));
}

void write_files(const WhatIf& asked, const TextTable& csv, const json::object& root) {
  if (!asked.csv_file.empty()) write_output_file(asked.csv_file, kTableCsv, csv.csv());
  if (!asked.json_file.empty()) write_output_file(asked.json_file, kSweepJson, json::serialize(root) + "\n");
}

/// Runs in which no request finished, each as "with num-blocks 1: WHY".
using Failures = std::vector<std::string>;

/// `why`: as sim::refusal_texts.
std::string failure_of(const WhatIf& asked, const Combination& values, const std::vector<std::string>& why) {
  std::string with;
  for (size_t i = 0; i < values.size(); ++i) {
    with += fmt::format("{}{} {}", i == 0 ? "with " : ", ", asked.axes[i].flag, values[i]);
  }
  return fmt::format("{}{}{}", with, with.empty() ? "" : ": ", fmt::join(why, "; "));
}

/// Throws Error if no request finished in any of `all` runs, before anything is printed or written of them.
void check_failures(const Failures& failures, size_t all) {
  if (failures.size() < all) return;
  throw Error(
      fmt::format("no request finished{} {}", all > 1 ? " in any run; the first," : ":", failures.front()));
}

/// Says on standard error that not all is there. Returns the exit status.
int judge(const Tally& tally, const Failures& failures) {
  std::fflush(stdout);
  for (const std::string& failure : failures) fmt::print(stderr, "quire: no request finished {}\n", failure);
  if (!InterruptNote::interrupted().exchange(false)) return failures.empty() ? 0 : 1;
  fmt::print(stderr, "quire: interrupted; {}\n", tally.text());
  return 128 + SIGINT;
}

/// What their reader changed or left out, once for each trace and part of it.
void note_traces(const std::vector<SimulateOptions>& options) {
  std::set<std::pair<std::string, std::optional<uint32_t>>> noted;
  for (const SimulateOptions& each : options) {
    if (each.workload.trace.empty()) continue;
    if (!noted.emplace(each.workload.trace, each.workload.requests).second) continue;
    print_notes(simulation_requests(each)->settings());
  }
}

/// Without what the runs were like.
TimeNotes time_notes(const std::vector<SimulateOptions>& options) {
  TimeNotes notes;
  for (const SimulateOptions& each : options) notes.take(simulation_config(each).cost);
  return notes;
}

// ---- --sweep ----

/// Says on standard error which runs can finish no request. Throws Error if none can.
void note_hopeless(const WhatIf& asked, const std::vector<Combination>& all,
                   const std::vector<SimulateOptions>& options) {
  const std::vector<std::string> why = why_none_fits(options);
  Failures hopeless;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!why[i].empty()) hopeless.push_back(failure_of(asked, all[i], {why[i]}));
  }
  if (hopeless.size() == all.size()) {
    throw Error(fmt::format("no request fits in any run; the first, {}", hopeless.front()));
  }
  for (const std::string& each : hopeless) fmt::print(stderr, "quire: no request will fit {}\n", each);
}

int sweep(const WhatIf& asked) {
  const std::vector<Combination> all = combinations(asked.axes);
  const std::vector<SimulateOptions> options = parse_all(asked, all);
  note_traces(options);
  note_hopeless(asked, all, options);
  std::vector<std::optional<RunResult>> results(all.size());
  for_all(all.size(), [&](size_t i) { results[i] = simulate_run(options[i], asked.slo); });
  std::vector<Line> lines;
  json::array runs;
  Failures failures;
  TimeNotes notes = time_notes(options);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!results[i]) continue;
    if (!results[i]->finished_any()) {
      failures.push_back(failure_of(asked, all[i], sim::refusal_texts(results[i]->report.totals)));
    }
    lines.push_back({&all[i], {}, &*results[i], {}});
    json::object run{{"flags", flags_json(asked, all[i])}};
    for (auto& [key, value] : sim::to_json(results[i]->report, results[i]->config, asked.slo))
      run[key] = value;
    runs.push_back(std::move(run));
    notes.take(results[i]->report);
  }
  check_failures(failures, all.size());
  const Tally tally{"runs", lines.size(), all.size()};
  if (lines.empty()) return judge(tally, failures);
  fmt::print("{}", table_of(asked, {}, lines, false).text(asked.axes.size()));
  notes.print();
  json::object root = json_head(asked);
  tally.add_to(root);
  root["runs"] = std::move(runs);
  write_files(asked, table_of(asked, {}, lines, true), root);
  write_page(asked, "A sweep of simulations", {}, lines, notes.complaints(), tally);
  return judge(tally, failures);
}

// ---- --find-capacity ----

/// What the load is, and where it is looked for.
struct SoughtLoad {
  const char* flag;  // "rate"
  const char* unit;
  sim::LoadRange range;
  bool is_whole() const { return range.parts == 1; }
};

/// It begins with the load that the command line has.
SoughtLoad load_of(const SimulateOptions& options) {
  const WorkloadOptions& workload = options.workload;
  const auto start_of = [](const std::string& text, const char* flag) {
    const uint64_t thousandths = sim::parse_thousandths(text, flag);
    return thousandths == 0 ? 1 : static_cast<double>(thousandths) / 1000;
  };
  if (workload.users || workload.agents) {
    const double start = workload.users.value_or(8);
    return {"users", "users", {.start = start, .least = 1, .parts = 1, .precision = 0}};
  }
  if (!workload.trace.empty())
    return {"trace-speed",
            "times its speed",
            {.start = start_of(workload.trace_speed, "--trace-speed"), .most = 4e6}};
  return {"rate", "requests/s", {.start = start_of(workload.rate.value_or("1"), "--rate")}};
}

/// As many requests as show whether a load is carried: arrivals for 20 times the longest limit.
uint64_t requests_for(const SoughtLoad& load, double at, const sim::Slo& slo) {
  constexpr double kLeast = 1000;
  constexpr double kMost = 100'000;
  constexpr double kTimes = 20;
  const Nanos longest = std::max({slo.ttft.value_or(0), slo.tpot.value_or(0), slo.e2e.value_or(0)});
  const double wanted = load.is_whole() ? kTimes * at : kTimes * at * static_cast<double>(longest) / 1e9;
  return static_cast<uint64_t>(std::clamp(std::ceil(wanted), kLeast, kMost));
}

struct Search {
  uint64_t seed = 0;
  sim::LoadLimit limit;
  std::optional<RunResult> at;  // the run with that load
  /// Why none of its requests finishes at any load; empty: some do.
  std::vector<std::string> nothing_fits;

  bool ended() const { return !limit.tried.empty() || !nothing_fits.empty(); }
};

struct Interrupted {};
struct NothingFits {
  std::vector<std::string> why;
};

Search search(const WhatIf& asked, const SoughtLoad& load, std::vector<std::string> arguments,
              bool choose_requests) {
  Search out;
  double held = 0;
  try {
    out.limit = find_load_limit(load.range, [&](double at) {
      std::vector<std::string> own = arguments;
      own.push_back(load.is_whole() ? fmt::format("--{}={}", load.flag, at)
                                    : fmt::format("--{}={:.3f}", load.flag, at));
      if (choose_requests) own.push_back(fmt::format("--requests={}", requests_for(load, at, asked.slo)));
      std::optional<RunResult> run = simulate_run(parse_run(asked, own, false), asked.slo);
      if (!run) throw Interrupted();
      const sim::SimulationTotals& totals = run->report.totals;
      if (!run->finished_any() && totals.refused_by[static_cast<size_t>(sim::Refusal::kQueueFull)] == 0) {
        throw NothingFits{sim::refusal_texts(totals)};
      }
      if (!asked.slo.attained(run->report.good, run->report.requests)) return false;
      if (at > held) {
        held = at;
        out.at = std::move(run);
      }
      return true;
    });
  } catch (const Interrupted&) {
    return {};
  } catch (const NothingFits& none) {
    out.nothing_fits = none.why;
  }
  return out;
}

/// The load of several searches; nullopt where no request fits.
using Found = std::optional<sim::LoadLimit>;
Found found_by(const Search& search) { return search.nothing_fits.empty() ? Found(search.limit) : Found(); }

/// Of searches that are sorted by what they found; between two in the middle, their mean, or the lower one
/// where the other is beyond what was looked for, or it itself is.
Found median_of(std::span<const Search> of) {
  const Found low = found_by(of[(of.size() - 1) / 2]);
  const Found high = found_by(of[of.size() / 2]);
  if (!low || !high) return std::nullopt;
  if (low->load == 0 || low->is_most != high->is_most) return low;
  return sim::LoadLimit{(low->load + high->load) / 2, low->is_most, {}};
}

std::string load_text(const SoughtLoad& load, const Found& found) {
  if (!found) return {};
  if (found->load == 0) return fmt::format("under {:g}", load.range.least);
  // The mean of two may have half a user.
  const int digits = !load.is_whole() ? 3 : std::floor(found->load) == found->load ? 0 : 1;
  return fmt::format("{}{:.{}f}", found->is_most ? "over " : "", found->load, digits);
}

json::value load_json(const Found& found) { return found ? json::value(found->load) : json::value(); }

/// Throws Error if a flag of the runs has no meaning in a search.
void check_search(const WhatIf& asked, const SoughtLoad& load) {
  for (const sim::SweepAxis& axis : asked.axes) {
    if (axis.flag == load.flag) {
      throw Error(fmt::format("--sweep: {} is what --find-capacity looks for", axis.flag));
    }
    if (axis.flag == "seed") throw Error("--sweep: --find-capacity has --seeds for that");
  }
}

/// Without the flags that a search sets.
std::vector<std::string> without_flags(std::vector<std::string> arguments,
                                       const std::vector<std::string>& flags) {
  std::erase_if(arguments, [&](const std::string& argument) {
    return std::ranges::any_of(
        flags, [&](const std::string& flag) { return argument.starts_with("--" + flag + "="); });
  });
  return arguments;
}

/// What the searches found.
struct Capacities {
  std::vector<Line> lines;
  json::array rows;
  Failures failures;
  TimeNotes notes;
};

/// `of`: at least one search that has ended, by their seeds; they are sorted by what they found.
void add_capacity(Capacities& out, const WhatIf& asked, const SoughtLoad& load, const Combination& values,
                  std::span<Search> of) {
  json::array seeds;
  for (const Search& each : of) {
    json::object one{
        {"seed", each.seed}, {"load", load_json(found_by(each))}, {"is_most", each.limit.is_most}};
    if (each.at) {
      one["report"] = sim::to_json(each.at->report, each.at->config, asked.slo);
      out.notes.take(each.at->report);
    }
    seeds.push_back(std::move(one));
  }
  if (std::ranges::none_of(of, [](const Search& each) { return each.nothing_fits.empty(); })) {
    out.failures.push_back(failure_of(asked, values, of.front().nothing_fits));
  }
  std::ranges::stable_sort(of, {}, [](const Search& each) { return each.limit.load; });
  const Found median = median_of(of);
  const Found least = found_by(of.front());
  const Found most = found_by(of.back());
  const Search& shown = of[(of.size() - 1) / 2];  // no run has the mean of two loads
  out.lines.push_back({&values,
                       {load_text(load, median), load_text(load, least), load_text(load, most)},
                       shown.at ? &*shown.at : nullptr,
                       {median ? median->load : 0, of.front().limit.load, of.back().limit.load}});
  out.rows.push_back({{"flags", flags_json(asked, values)},
                      {"median", load_json(median)},
                      {"least", load_json(least)},
                      {"most", load_json(most)},
                      {"seeds", std::move(seeds)}});
}

int find_capacity(WhatIf asked) {
  const std::vector<Combination> all = combinations(asked.axes);
  const std::vector<SimulateOptions> options = parse_all(asked, all);
  const SoughtLoad load = load_of(options.front());
  check_search(asked, load);
  const WorkloadOptions& workload = options.front().workload;
  const bool choose_requests = !workload.requests && workload.trace.empty();
  const uint64_t seed = workload.seed;
  asked.arguments = without_flags(asked.arguments, {load.flag, "seed"});
  note_traces(options);
  std::vector<Search> found(all.size() * asked.seeds);
  for_all(found.size(), [&](size_t i) {
    std::vector<std::string> arguments = arguments_of(asked, all[i / asked.seeds]);
    arguments.push_back(fmt::format("--seed={}", seed + i % asked.seeds));
    found[i] = search(asked, load, std::move(arguments), choose_requests);
    found[i].seed = seed + i % asked.seeds;
  });

  Capacities got{.lines = {}, .rows = {}, .failures = {}, .notes = time_notes(options)};
  Tally tally{"searches", 0, found.size()};
  for (size_t i = 0; i < all.size(); ++i) {
    const std::span<Search> of(&found[i * asked.seeds], asked.seeds);
    const size_t ended = of.size() - std::ranges::stable_partition(of, &Search::ended).size();
    tally.ended += ended;
    if (ended > 0) add_capacity(got, asked, load, all[i], of.first(ended));
  }
  if (got.lines.empty()) return judge(tally, got.failures);
  check_failures(got.failures, all.size());
  fmt::print("The largest load that meets {}, in {}; median, least and most over {}{} seed{}{}:\n\n",
             asked.slo.text(), load.unit, tally.unfinished() > 0 ? "those that had ended of " : "",
             asked.seeds, asked.seeds == 1 ? "" : "s", load.is_whole() ? "" : ", each within 1 % or 0.001");
  const std::vector<std::string> heads = {load.flag, "least", "most"};
  fmt::print("{}", table_of(asked, heads, got.lines, false).text(asked.axes.size()));
  got.notes.print();
  json::object root = json_head(asked);
  tally.add_to(root);
  root["capacity_of"] = load.flag;
  root["rows"] = std::move(got.rows);
  write_files(asked, table_of(asked, heads, got.lines, true), root);
  write_page(asked, fmt::format("The largest {} that meets the objectives", load.flag), heads, got.lines,
             got.notes.complaints(), tally);
  return judge(tally, got.failures);
}

}  // namespace

int run_what_if(const WhatIf& asked) {
  check_output_file(asked.csv_file, kTableCsv);
  check_output_file(asked.json_file, kSweepJson);
  check_output_file(asked.html_file, bench::page_kind());
  const OutputFile outputs[] = {
      {"--csv", asked.csv_file}, {"--json", asked.json_file}, {"--html", asked.html_file}};
  refuse_same_file(outputs);
  const InterruptNote note;
  return asked.find_capacity ? find_capacity(asked) : sweep(asked);
}

}  // namespace quire::cli
