#include "cli/simulate_options.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/policy_options.h"
#include "cli/sim_options.h"
#include "control/kv/windows.h"
#include "startup/capacity.h"
#include "startup/model_files.h"
#include "startup/model_outline.h"

namespace quire::cli {
namespace {

/// Of K/V, to say what a block takes of --swap-space: 32 layers with 8 K/V heads of 128 in bf16 (Llama 3 8B).
constexpr uint64_t kTokenBytes = 131072;

constexpr uint32_t kUsualBlocks = 4096;  // of the pool, where no memory bounds it

/// The model that is simulated.
struct KnownModel {
  backend::ModelShape shape;         // with its type of K/V
  std::optional<uint64_t> kv_bytes;  // memory for K/V, if it is known
};

/// The pool that the memory of the machine makes, but no more than the sequences can use.
uint32_t pool_of(const KnownModel& model, const control::SchedulerConfig& config, uint32_t longest) {
  if (!model.kv_bytes) return kUsualBlocks;
  const uint64_t bytes =
      std::min(*model.kv_bytes, startup::most_kv_bytes(model.shape, config.block_size, config.max_num_seqs,
                                                       longest, config.max_num_batched_tokens));
  const uint64_t blocks = bytes / model.shape.kv_block_bytes(config.block_size);
  return static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX / config.block_size));
}

/// The longest sequence that is taken. Throws Error if the pool holds none.
uint32_t longest_in(const control::SchedulerConfig& config, const std::optional<uint32_t>& given,
                    uint32_t most) {
  if (given) return *given;
  const uint64_t fits =
      control::longest_sequence(config.kv_windows, config.num_blocks, config.block_size, most);
  if (fits > 0) return static_cast<uint32_t>(fits);
  throw Error(fmt::format("--num-blocks: {} K/V blocks cannot hold one token of a model with {} K/V groups",
                          config.num_blocks, config.kv_windows.size()));
}

control::SchedulerConfig scheduler_config(const SimulateOptions& options, const backend::sim::CostModel& cost,
                                          const std::optional<KnownModel>& model) {
  const auto pick = [&](const std::optional<uint32_t>& given, uint32_t demo, uint32_t otherwise) {
    return given.value_or(options.demo ? demo : otherwise);
  };
  control::SchedulerConfig config;
  config.block_size = pick(options.block_size, 16, 16);
  config.max_num_seqs = pick(options.max_num_seqs, 24, 64);
  config.max_num_batched_tokens = pick(options.max_num_batched_tokens, 192, 2048);
  if (config.max_num_batched_tokens < config.max_num_seqs) {
    throw Error(fmt::format("--max-num-batched-tokens: {} is less than the {} of --max-num-seqs",
                            config.max_num_batched_tokens, config.max_num_seqs));
  }
  uint64_t block_bytes = kTokenBytes * config.block_size;
  if (model) {
    const uint32_t most = model->shape.max_positions;
    if (options.max_model_len.value_or(0) > most) {
      throw Error(fmt::format("--max-model-len: {} is more than the {} positions of the model",
                              *options.max_model_len, most));
    }
    config.num_blocks =
        pick(options.num_blocks, 128, pool_of(*model, config, options.max_model_len.value_or(most)));
    config.kv_windows = model->shape.kv_windows;
    config.max_model_len = longest_in(config, options.max_model_len, most);
    block_bytes = model->shape.kv_block_bytes(config.block_size);
  } else {
    config.num_blocks = pick(options.num_blocks, 128, kUsualBlocks);
    const uint64_t pool = uint64_t{config.num_blocks} * config.block_size;
    config.max_model_len =
        options.max_model_len.value_or(static_cast<uint32_t>(std::min<uint64_t>(pool, UINT32_MAX)));
    config.kv_windows = {options.sliding_window};
  }
  config.max_waiting = options.max_waiting.value_or(UINT32_MAX);
  config.enable_prefix_caching = options.enable_prefix_caching;
  startup::apply_policy_options(options.policies, block_bytes, config);
  config.costs = cost.hints(config.max_num_seqs);
  return config;
}

void add_scheduler_options(const Flags& command, SimulateOptions& options) {
  const char* group = "Memory and batching";
  const auto add = [&](const char* name, auto& value, const char* help, int64_t least, int64_t most) {
    command.add_option(name, value, help).group(group).value_name("N").range(least, most);
  };
  add("--num-blocks,--num-gpu-blocks-override", options.num_blocks, "K/V blocks of the pool (default 4096)",
      1, INT32_MAX);
  add("--block-size", options.block_size, "Tokens of a K/V block (default 16)", 1, 65536);
  add("--max-num-seqs", options.max_num_seqs, "Sequences that run at once (default 64)", 1, 65536);
  add("--max-num-batched-tokens", options.max_num_batched_tokens, "Token budget of a step (default 2048)", 1,
      INT32_MAX);
  add("--max-model-len", options.max_model_len,
      "Most tokens of a sequence, prompt and answer together; longer ones are refused (default: what the "
      "pool holds)",
      1, INT32_MAX);
  add("--max-waiting", options.max_waiting, "Requests that may wait; more are refused (default: all may)", 0,
      INT32_MAX);
  add("--sliding-window", options.sliding_window,
      "Limit attention to the last N tokens, and free the blocks behind them (default 0: no window)", 0,
      INT32_MAX);
  command
      .add_flag("!--no-enable-prefix-caching,--enable-prefix-caching", options.enable_prefix_caching,
                "Share the K/V of equal prefixes between requests (on by default)")
      .group(group);
}

/// The model that --machine runs, or that --cost is of.
void add_model(const Flags& command, SimulateOptions& options) {
  command
      .add_option("--model", options.model,
                  "Of --machine: a model directory or .gguf file; of a directory config.json is enough. The "
                  "pool is what the machine's memory holds beside its weights (--num-blocks: another). Of "
                  "--cost: a file that is not of this model, with these formats, is refused")
      .group(kSimGroup)
      .value_name("MODEL")
      .excludes(command.find("--sliding-window"));
  command
      .add_option("--quantization", options.formats.quantization,
                  "Weights of --model in memory: auto (as in the file), none, int8, int4")
      .group(kSimGroup)
      .show_default()
      .value_name("FORMAT");
  add_dtype_option(command, options.dtype).group(kSimGroup);
  add_kv_dtype_option(command, options.formats.kv_cache_dtype).group(kSimGroup);
  command
      .add_flag("--force", options.cost.force,
                "Take a --cost of another model than --model, or of other formats, with a warning in all "
                "that is written")
      .group(kSimGroup);
}

/// The model and the machine belong together; and the model and what is checked to be of it.
void check_model(const SimulateOptions& options, const Flags& command) {
  if (options.cost.machine && options.model.empty()) {
    throw Error("--machine: needs --model, what it runs; of a model directory config.json is enough");
  }
  const bool is_checked = !options.cost.cost_file.empty() && !options.model.empty();
  if (!is_checked) refuse_if_given(command, "--force", "without --cost and --model, which may differ");
  if (options.cost.machine || is_checked) return;
  const char* why = options.cost.cost_file.empty() ? "without --machine, which runs the model, or --cost"
                                                   : "with --cost alone; --model says of what it must be";
  for (const char* flag : {"--model", "--dtype", "--quantization", "--kv-cache-dtype"}) {
    refuse_if_given(command, flag, why);
  }
}

startup::ModelOutline outline_of(const SimulateOptions& options) {
  startup::ModelOutline model = startup::outline_of(options.model);
  set_compute_type(model, options.dtype);
  return model;
}

/// The fitted cost model, checked to be of the model where there is one. Its machine is not: a simulation has
/// none.
backend::sim::FittedCost checked_cost(const SimulateOptions& options, const startup::ModelOutline* model) {
  backend::sim::CostFile file = backend::sim::read_cost_file(options.cost.cost_file);
  backend::sim::CostRun run;
  if (model != nullptr) {
    run.model = startup::model_name(model->path);
    run.setup = setup_of(*model, options.formats);
  }
  file.cost.warning = check_cost_file_for(run, file, options.cost.cost_file, options.cost.force);
  return std::move(file.cost);
}

WorkloadOptions workload_options(const SimulateOptions& options) {
  WorkloadOptions workload = options.workload;
  if (options.demo) use_demo_workload(workload);
  return workload;
}

void refuse_idle_flags(const SimulateOptions& options, const Flags& command,
                       const WorkloadOptions& workload) {
  const uint32_t at_once = options.max_num_seqs.value_or(0);  // 0: the default, which is several
  refuse_idle_policies(command, options.policies,
                       {.prefix_caching = options.enable_prefix_caching,
                        .max_num_seqs = at_once,
                        .tenants = tenants_known(workload),
                        .priorities = priorities_known(workload),
                        .choices = workload.choices});
  if (options.policies.scheduling != control::SchedulingKind::kSrpt) {
    refuse_if_given(command, "--known-lengths",
                    "without --scheduling-policy srpt, the only policy that uses them");
  }
  refuse_idle_costs(command, options.policies.preemption != control::PreemptionKind::kRecompute, at_once);
  if (options.sliding_window > 0 && options.max_model_len.value_or(UINT32_MAX) <= options.sliding_window) {
    refuse_if_given(command, "--sliding-window", "unless it is less than --max-model-len");
  }
}

}  // namespace

void add_simulation_flags(const Flags& command, SimulateOptions& options) {
  command.add_flag("--demo", options.demo,
                   "A demonstration: a small pool, bursts, random arrivals and shared prefixes, step by "
                   "step; other flags change it");
  add_workload_options(command, options.workload);
  add_conversation_options(command, options.workload);
  add_service_options(command, options.workload);
  add_scheduler_options(command, options);
  add_policy_options(command, options.policies);
  add_cost_options(command, options.cost);
  add_model(command, options);
  const auto add_time = [&](const char* name, uint64_t& time, const char* help) {
    command.add_option(name, time, help)
        .group(kSimGroup)
        .value_name("US")
        .show_default()
        .range(int64_t{0}, int64_t{1'000'000});
  };
  add_time("--latency-us", options.latency_us,
           "The way of a request to the server and of its first token back, however many there are");
  add_time("--accept-us", options.accept_us,
           "Receiving a request, one after the other, before it may be planned; tenants take turns");
}

void settle_simulation(const SimulateOptions& options, const Flags& command, bool idle) {
  if (options.demo) {
    for (const char* flag : {"--trace", "--agents"}) {
      refuse_if_given(command, flag, "with --demo, which has a workload of its own");
    }
  }
  check_model(options, command);
  const WorkloadOptions workload = workload_options(options);
  check_workload_options(workload);
  if (idle) refuse_idle_flags(options, command, workload);
}

sim::SimulationConfig simulation_config(const SimulateOptions& options) {
  sim::SimulationConfig config;
  std::optional<KnownModel> model;
  if (options.cost.machine) {
    startup::SimulatedMachine machine =
        startup::simulated_machine(outline_of(options), options.formats,
                                   startup::with_efficiency(*options.cost.machine, options.cost.efficiency),
                                   options.block_size.value_or(16));
    config.cost = std::move(machine.cost);
    model = {std::move(machine.shape), machine.kv_bytes};
  } else if (!options.model.empty()) {
    const startup::ModelOutline outline = outline_of(options);
    config.cost = checked_cost(options, &outline);
    model = {shape_with_kv(outline, options.formats.kv_cache_dtype), std::nullopt};
  } else if (!options.cost.cost_file.empty()) {
    config.cost = checked_cost(options, nullptr);
  } else {
    config.cost = options.cost.model();
  }
  config.scheduler = scheduler_config(options, config.cost, model);
  config.depth = options.cost.steps_in_flight.value_or(1);
  config.jitter = options.cost.jitter;
  config.jitter_seed = options.cost.jitter_seed;
  config.check_kv = options.cost.check_kv;
  config.latency = static_cast<Nanos>(options.latency_us) * 1000;
  config.accept = static_cast<Nanos>(options.accept_us) * 1000;
  return config;
}

std::unique_ptr<sim::RequestStream> simulation_requests(const SimulateOptions& options) {
  const auto check = [&](const sim::Workload& trace) { check_policies(options.policies, trace); };
  std::unique_ptr<sim::RequestStream> requests = make_requests(workload_options(options), check);
  if (requests->size() == 0) throw Error("--requests: the workload has no requests");
  return requests;
}

}  // namespace quire::cli
