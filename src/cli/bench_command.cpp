// bench latency: how fast a model computes here, without the engine around it.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/latency.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "startup/model_options.h"

namespace quire::cli {
namespace {

struct LatencyOptions {
  startup::ModelOptions model;
  std::string kv_cache_dtype = "auto";
  bench::LatencyPlan plan;
  bool as_json = false;
};

int latency(const LatencyOptions& options) {
  const model::ModelConfig config = startup::config_of(options.model);
  const std::optional<DType> kv_dtype = startup::pick_kv_dtype(options.kv_cache_dtype, config.head_dim);
  const auto model = startup::load_model(options.model, config);
  const bench::LatencyPlan& plan = options.plan;
  Progress progress("bench", plan.repeats * ((plan.prompt > 0 ? 1 : 0) + plan.batches.size()));
  const std::vector<bench::LatencyRow> rows =
      bench::measure_latency(*model->decoder, model->context, plan, kv_dtype, [&] { progress.advance(); });
  if (!options.as_json) fmt::print("{:<14} {:>10} {:>12}\n", "step", "ms", "tokens/s");
  for (const bench::LatencyRow& row : rows) {
    if (options.as_json) {
      fmt::print("{{\"step\":\"{}\",\"tokens\":{},\"seconds\":{:.6f},\"tokens_per_second\":{:.2f}}}\n",
                 row.name, row.tokens, row.seconds, row.tokens / row.seconds);
    } else {
      fmt::print("{:<14} {:>10.2f} {:>12.1f}\n", row.name, row.seconds * 1e3, row.tokens / row.seconds);
    }
  }
  return 0;
}

}  // namespace

void add_bench(const Flags& app, Command& run) {
  const Flags bench = app.add_command("bench", "Measure how fast a model runs here");
  bench.require_command();
  add_throughput(bench, run);
  add_bench_serve(bench, run);
  add_bench_ops(bench, run);
  auto options = std::make_shared<LatencyOptions>();
  const Flags command = bench.add_command(
      "latency", "Time of single steps: one prompt, and decoding of several sequences at once");
  add_model_options(command, options->model);
  add_kv_dtype_option(command, options->kv_cache_dtype);
  command.add_option("--prompt", options->plan.prompt, "Tokens of the prompt; 0: none")
      .show_default()
      .value_name("N");
  command.add_option("--batch", options->plan.batches, "Sequences that decode at once")
      .comma_separated()
      .one_value()
      .show_default(fmt::format("{}", fmt::join(options->plan.batches, ",")))
      .range(1, 4096)
      .value_name("N,N,...");
  command.add_option("--context", options->plan.context, "Tokens that each sequence already has")
      .show_default()
      .range(1, INT32_MAX)
      .value_name("N");
  command.add_option("--steps", options->plan.steps, "Decode steps of one measurement")
      .show_default()
      .range(1, INT32_MAX)
      .value_name("N");
  command.add_option("--repeats", options->plan.repeats, "Measurements; the median is shown")
      .show_default()
      .range(1, INT32_MAX)
      .value_name("N");
  command.add_flag("--json", options->as_json, "One JSON object a line");
  command.callback([options, &run] { run = [options] { return latency(*options); }; });
  // After its commands, which would have it below their own help, too.
  bench.footer("\nquire bench COMMAND --help says more about each.");
}

}  // namespace quire::cli
