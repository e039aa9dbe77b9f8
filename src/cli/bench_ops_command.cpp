// bench ops: each kernel by itself, at the shapes of Llama-3.2-1B, beside what the machine can do.
#include <algorithm>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/machine_limits.h"
#include "base/machine_name.h"
#include "base/output_file.h"
#include "bench/ops.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/terminal.h"
#include "cli/version.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

constexpr FileKind kFigures{"result of quire bench ops", "{\"machine\":"};

struct BenchOpsOptions {
  std::string filter;
  std::string isa = "all";
  std::string json_file;
  uint32_t repeats = 5;
  uint32_t threads = 0;
  bool list = false;
};

/// Those that the flags ask for, in the order in which they run.
std::vector<bench::OpCase> chosen_cases(const BenchOpsOptions& options) {
  std::vector<bench::OpCase> cases{bench::empty_loop_case()};
  std::vector<kernels::IsaLevel> levels;
  if (options.isa != "all") {
    levels = {kernels::pick_isa(options.isa, "--isa")};
  } else {
    // The reference is for reading, not for speed.
    for (const kernels::IsaLevel level : kernels::available_isa_levels()) {
      if (level != kernels::IsaLevel::kReference) levels.push_back(level);
    }
  }
  for (const kernels::IsaLevel level : levels) {
    for (bench::OpCase& each : bench::op_cases(level)) cases.push_back(std::move(each));
  }
  try {
    const std::regex filter(options.filter);
    std::erase_if(cases, [&](const bench::OpCase& each) { return !std::regex_search(each.name, filter); });
  } catch (const std::regex_error&) {
    throw Error(fmt::format("--filter: '{}' is not a regular expression", options.filter));
  }
  if (cases.empty()) {
    throw Error(fmt::format("--filter: no op's name matches '{}'; --list lists them all", options.filter));
  }
  return cases;
}

/// A share of a peak in per cent; "-" where none is known.
std::string share(double rate, double peak) {
  return peak > 0 ? fmt::format("{:.1f}", 100 * rate / peak) : "-";
}

void print_row(const std::string& name, const bench::Measured& measured) {
  const double seconds = measured.median();
  if (measured.flops == 0) {
    fmt::print("{:<42} {:>12.2f}\n", name, seconds * 1e6);
    return;
  }
  const double flops = measured.flops / seconds;
  const double bytes = measured.bytes / seconds;
  fmt::print("{:<42} {:>12.2f} {:>10.2f} {:>8} {:>8.2f} {:>12.1f} {:>8.1f}\n", name, seconds * 1e6,
             flops / 1e9, share(flops, measured.peaks.flops), bytes / 1e9, 100 * bytes / measured.peaks.bytes,
             100 * measured.limit() / seconds);
}

json::object to_json(const std::string& name, const bench::Measured& measured) {
  const double seconds = measured.median();
  json::object row{{"name", name}, {"seconds", seconds}, {"repeats", json::value_from(measured.seconds)}};
  if (measured.flops == 0) return row;
  row["flops_per_second"] = measured.flops / seconds;
  row["bytes_per_second"] = measured.bytes / seconds;
  row["peak_flops_per_second"] =
      measured.peaks.flops > 0 ? json::value(measured.peaks.flops) : json::value(nullptr);
  row["peak_bytes_per_second"] = measured.peaks.bytes;
  row["limit_seconds"] = measured.limit();
  return row;
}

int bench_ops(const BenchOpsOptions& options) {
  const std::vector<bench::OpCase> cases = chosen_cases(options);
  if (options.list) {
    for (const bench::OpCase& each : cases) fmt::print("{}\n", each.name);
    return 0;
  }
  check_output_file(options.json_file, kFigures);
  ThreadPool pool(options.threads > 0 ? options.threads : usable_cpus().threads);
  const std::string machine = machine_name();
  fmt::print("{}; {} threads, medians of {}\n", machine, pool.num_threads(), options.repeats);
  fmt::print("{}\n", paint(stdout,
                           fmt::format("{:<42} {:>12} {:>10} {:>8} {:>8} {:>12} {:>8}", "op", "microseconds",
                                       "GFLOP/s", "% peak", "GB/s", "% bandwidth", "% limit"),
                           fmt::emphasis::bold));
  std::fflush(stdout);
  json::array rows;
  Progress progress("ops", cases.size());
  for (const bench::OpCase& each : cases) {
    const bench::Measured measured = bench::measure(each, pool, options.repeats);
    progress.hide();
    print_row(each.name, measured);
    std::fflush(stdout);
    progress.advance();
    rows.push_back(to_json(each.name, measured));
  }
  if (!options.json_file.empty()) {
    const json::object figures{{"machine", machine},
                               {"version", version()},
                               {"threads", pool.num_threads()},
                               {"ops", std::move(rows)}};
    write_output_file(options.json_file, kFigures, json::serialize(figures) + "\n");
  }
  return 0;
}

}  // namespace

void add_bench_ops(const Flags& bench, Command& run) {
  auto options = std::make_shared<BenchOpsOptions>();
  const Flags command = bench.add_command(
      "ops", "Speed of each kernel at the shapes of Llama-3.2-1B, compared with the machine's limits");
  command.footer(
      "\nBefore and after each op the machine's limits are measured: \"% peak\" is relative to the "
      "best\nmultiply-add instruction of the level, \"% bandwidth\" to reading memory (an op whose data stay "
      "in\nthe cache exceeds it). \"% limit\" is relative to the roofline: the longer of the times that its\n"
      "arithmetic and its bytes need. Try\n"
      "  quire bench ops --filter 'matmul/.*/int8/' --isa auto");
  command
      .add_option("--filter", options->filter,
                  "Measure only the ops whose name matches this regular expression")
      .value_name("REGEX")
      .may_be_empty();
  command
      .add_option("--isa", options->isa,
                  "Instruction-set level: all (that this machine has), auto (the best), reference, avx2, "
                  "avx2-vnni, avx512, avx512-vnni, avx512-bf16, amx")
      .show_default()
      .value_name("LEVEL");
  command.add_option("--repeats", options->repeats, "Measurements per op; the median is shown")
      .show_default()
      .range(1, 10000)
      .value_name("N");
  command
      .add_option("--threads", options->threads, "Compute threads; 0: one per CPU that this process may use")
      .show_default()
      .range(0, 1024)
      .value_name("N");
  command.add_option("--json", options->json_file, "Also write the results to this file, with every repeat")
      .value_name("FILE");
  command.add_flag("--list", options->list, "List the ops without measuring them");
  command.callback([options, command, &run] {
    for (const char* flag : {"--repeats", "--threads", "--json"}) {
      if (options->list) refuse_if_given(command, flag, "with --list, which measures nothing");
    }
    run = [options] { return bench_ops(*options); };
  });
}

}  // namespace quire::cli
