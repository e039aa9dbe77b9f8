#include "startup/local_engine.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "backend/sim/kv_check.h"
#include "base/amounts.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine_name.h"
#include "base/output_file.h"
#include "control/kv/windows.h"
#include "formats/model_config.h"
#include "startup/capacity.h"
#include "startup/model_files.h"
#include "startup/shadow.h"
#include "startup/warm_file.h"

namespace quire::startup {
namespace {

constexpr uint64_t kLeastStepLog = 64 << 10;

/// Tells two sinks, of which either may be null. Both must outlive it.
class BothSinks final : public engine::StepSink {
 public:
  BothSinks(engine::StepSink* one, engine::StepSink* other) : sinks_{one, other} {}
  void take(const backend::StepRecord& record) noexcept override {
    for (engine::StepSink* const each : sinks_) {
      if (each != nullptr) each->take(record);
    }
  }

 private:
  const std::array<engine::StepSink*, 2> sinks_;
};

/// Checks the output files of a run: different files, and each of its own kind. Throws Error before any is
/// opened.
void check_outputs(const EngineOptions& options) {
  refuse_same_file(output_files(options));
  check_output_file(options.step_trace);
  check_output_file(options.step_log);
  check_output_file(options.decision_log);
  if (!options.step_trace.empty()) engine::StepTrace::check_place(options.step_trace);
  if (!options.step_log.empty()) engine::StepLog::check_place(options.step_log);
  if (parse_bytes(options.step_log_max, "--step-log-max") < kLeastStepLog) {
    throw Error("--step-log-max: must be at least 64KiB");
  }
  if (!options.decision_log.empty())
    record::RunWriter::check_place(options.decision_log, record::parse_log_limit(options.decision_log_max));
}

/// Checks what does not depend on the model, before the weights are read, which may take minutes.
void check_options(const EngineOptions& options) {
  check_outputs(options);
  if (options.block_size % 16 != 0) {
    throw Error(fmt::format("--block-size: {} is not a multiple of 16", options.block_size));
  }
  if (options.gpu_memory_utilization && !options.device->may_be_gpu) {
    throw Error(
        "--gpu-memory-utilization: is for --device cuda; on the CPU, --kv-cache-memory SIZE says how much "
        "K/V "
        "may take");
  }
  if (options.fast_gemm && !options.device->may_be_gpu) {
    throw Error(
        "--fast-gemm: is for --device cuda; the CPU has one way to multiply, the same for all batches");
  }
  const bool keeps_prefixes = options.enable_prefix_caching && !options.device->is_simulated;
  if (!options.prefix_cache_file.empty() && !keeps_prefixes) {
    throw Error("--prefix-cache-file: there is no prefix cache to keep");
  }
  if (!options.prefix_cache_file.empty()) engine::check_prefix_file_place(options.prefix_cache_file);
  if (options.model.pack_cache && options.device->is_simulated) {
    throw Error("--pack-cache: a simulated device packs no weights");
  }
}

/// A given size is used unchanged, but if less memory is available, the user should know before the system
/// kills the process.
void warn_of_too_much(const EngineOptions& options, uint64_t bytes,
                      const std::optional<backend::DeviceMemory>& memory) {
  if (!memory || bytes <= memory->free_bytes) return;
  const char* flag = options.num_blocks > 0             ? "--num-blocks"
                     : !options.kv_cache_memory.empty() ? "--kv-cache-memory"
                                                        : "--swap-space";
  log_warning(
      fmt::format("{}: K/V takes {}, and {} of memory are available ({}): the system may kill this process "
                  "when the pool fills",
                  flag, human_bytes(bytes), human_bytes(memory->free_bytes), memory->source));
}

uint32_t pick_num_blocks(const EngineOptions& options, const backend::ModelShape& shape, uint32_t longest,
                         uint64_t default_memory) {
  if (options.num_blocks > 0) return options.num_blocks;
  const uint64_t block_bytes = shape.kv_block_bytes(options.block_size);
  uint64_t memory = 0;
  if (options.kv_cache_memory.empty()) {
    memory = std::min(default_memory, most_kv_bytes(shape, options.block_size, options.max_num_seqs, longest,
                                                    kMaxAutoBudget));
  } else {
    memory = parse_bytes(options.kv_cache_memory, "--kv-cache-memory");
  }
  const uint64_t blocks = memory / block_bytes;
  const uint64_t most = UINT32_MAX / options.block_size;
  if (blocks == 0 && options.kv_cache_memory.empty()) {
    throw Error(fmt::format("beside weights and activations {} are left for K/V, and one block takes {}: {}",
                            human_bytes(memory), human_bytes(block_bytes),
                            options.device->may_be_gpu
                                ? "a higher --gpu-memory-utilization, or fewer --max-num-batched-tokens or "
                                  "--max-num-seqs, would leave more"
                                : "--kv-cache-memory SIZE says how much it may take"));
  }
  if (blocks == 0) {
    throw Error(fmt::format("--kv-cache-memory: {} cannot hold one K/V block of {}", human_bytes(memory),
                            human_bytes(block_bytes)));
  }
  if (blocks > most) {
    throw Error(fmt::format("--kv-cache-memory: {} is more than the largest pool, {} K/V blocks of {}",
                            human_bytes(memory), with_commas(most), human_bytes(block_bytes)));
  }
  return static_cast<uint32_t>(blocks);
}

/// Whether a decision depends on the cost of a token.
bool weighs_costs(const PolicyOptions& options) {
  return options.preemption == control::PreemptionKind::kAuto ||
         options.scheduling == control::SchedulingKind::kSrpt ||
         options.scheduling == control::SchedulingKind::kSlo;
}

/// The longest sequence that is served.
uint32_t pick_max_model_len(const EngineOptions& options, const model::ModelConfig& config,
                            const backend::ModelShape& shape, uint32_t num_blocks) {
  if (options.max_model_len > config.max_positions) {
    throw Error(fmt::format("--max-model-len: {} is more than the {} positions of the model",
                            options.max_model_len, config.max_positions));
  }
  const uint32_t wanted = options.max_model_len > 0 ? options.max_model_len : config.max_positions;
  const uint64_t fits = control::longest_sequence(shape.kv_windows, num_blocks, options.block_size, wanted);
  if (wanted <= fits) return wanted;
  const uint64_t block_bytes = shape.kv_block_bytes(options.block_size);
  if (options.max_model_len > 0) {
    throw Error(fmt::format(
        "--max-model-len: one sequence of {} tokens needs {} of K/V memory, and the pool holds {} "
        "tokens ({}); lower it or give more --kv-cache-memory",
        wanted,
        human_bytes(control::blocks_held(shape.kv_windows, wanted, 1, options.block_size) * block_bytes),
        fits, human_bytes(num_blocks * block_bytes)));
  }
  if (fits == 0) {
    throw Error(fmt::format("--num-blocks: {} K/V blocks cannot hold one token of a model with {} K/V groups",
                            num_blocks, shape.kv_windows.size()));
  }
  log_warning(
      fmt::format("the model takes sequences of {} tokens, but the K/V pool holds {}: sequences end there",
                  wanted, fits));
  return static_cast<uint32_t>(fits);
}

/// CostOptions::check_for: a simulated device stands for this machine with the model in it.
std::string check_costs(const EngineOptions& options) {
  if (options.cost.cost_file.empty()) return {};
  return options.cost.check_for({.model = model_name(options.model.model),
                                 .machine = machine_name(),
                                 .setup = setup_of(options),
                                 .runs_on = backend::sim::RunsOn::kSimulated});
}

}  // namespace

std::optional<uint32_t> given_budget(const EngineOptions& options) {
  const std::string& given = options.max_num_batched_tokens;
  if (given == "auto") return std::nullopt;
  uint32_t budget = 0;
  const auto [end, failed] = std::from_chars(given.data(), given.data() + given.size(), budget);
  if (failed != std::errc() || *end != '\0' || budget < options.max_num_seqs) {
    throw Error(fmt::format(
        "--max-num-batched-tokens: '{}' is neither 'auto' nor a number from --max-num-seqs ({}) up", given,
        options.max_num_seqs));
  }
  return budget;
}

backend::sim::DeviceSetup setup_of(const EngineOptions& options) {
  ModelOutline model = outline_of(options.model.model);
  set_compute_type(model, options.model.dtype);
  return setup_of(model, {options.model.quantization, options.kv_cache_dtype});
}

std::vector<OutputFile> output_files(const EngineOptions& options) {
  const std::string beside = options.prefix_cache_file.empty() ? "" : options.prefix_cache_file + ".part";
  return {{"--prefix-cache-file", options.prefix_cache_file},
          {"--prefix-cache-file", beside},
          {"--step-trace", options.step_trace},
          {"--step-log", options.step_log},
          {"--decision-log", options.decision_log}};
}

LocalEngine::LocalEngine(const EngineOptions& options, const std::string& served_name,
                         engine::StepSink* steps)
    : tokenizer(load_tokenizer(checked_model(options.model.model))),
      defaults(formats::load_sampling_defaults(options.model.model)),
      metrics(served_name) {
  check_options(options);
  std::optional<backend::sim::CostFile> cost = read_shadow_costs(options);
  if (cost) check_shadow(*cost, options, setup_before_weights(options));  // loading may take minutes
  facts = config_of(options.model);
  if (!options.sim_answers.empty())
    answers = std::make_unique<engine::AnswerScript>(options.sim_answers, *tokenizer, facts.eos);
  config.eos = facts.eos;
  config.vocab_size = facts.vocab_size;
  if (options.device->is_simulated) {
    warning = check_costs(options);
    if (!warning.empty()) {
      log_warning(warning);
      metrics.cost_warning("--cost", warning);
    }
    if (options.cost.check_kv) config.adapt_sampling = backend::sim::tell_history;
  }
  backend = options.device->make(options, facts, *tokenizer);
  const std::string of_shadow =
      cost ? check_shadow(*cost, options, backend::sim::setup_in(backend->describe())) : "";
  if (!of_shadow.empty()) {
    log_warning("--shadow: " + of_shadow);
    metrics.cost_warning("--shadow", of_shadow);
  }
  size_pools(options);
  set_budget(options);
  reserve_step();
  executor = backend->make_executor();
  if (!options.prefix_cache_file.empty()) {
    const uint32_t longest = options.max_model_len > 0 ? options.max_model_len : facts.max_positions;
    warm = std::make_unique<WarmFile>(options.prefix_cache_file,
                                      prefix_file_key(*backend, options.model.model, facts, longest),
                                      options.block_size, *backend, file_access(options.model));
  }
  log_sizes(served_name);
  open_files(options, served_name);
  if (cost) shadow = make_shadow(std::move(*cost), options, served_name);
  if (steps != nullptr || step_log) sinks = std::make_unique<BothSinks>(steps, step_log.get());
  engine = std::make_unique<engine::Engine>(config, *tokenizer, *executor, clock, trace.get(), &metrics,
                                            record.get(), warm.get(), sinks.get(), shadow.get());
}

void LocalEngine::open_files(const EngineOptions& options, const std::string& served_name) {
  if (!options.step_trace.empty()) trace = std::make_unique<engine::StepTrace>(options.step_trace);
  if (!options.step_log.empty()) {
    boost::json::object running{{"model", model_name(options.model.model)},
                                {"served_as", served_name},
                                {"device", backend->describe()},
                                {"machine", machine_name()},
                                {"threads", options.device->is_simulated ? 0 : num_threads(options.model)},
                                {"budget", config.scheduler.max_num_batched_tokens}};
    if (!warning.empty()) running["warning"] = warning;
    const std::string members = boost::json::serialize(running);
    step_log = std::make_unique<engine::StepLog>(options.step_log, members.substr(1, members.size() - 2),
                                                 parse_bytes(options.step_log_max, "--step-log-max"));
  }
  if (!options.decision_log.empty()) {
    record = std::make_unique<record::RunWriter>(options.decision_log,
                                                 record::parse_log_limit(options.decision_log_max), warning);
  }
}

std::vector<TokenId> LocalEngine::prompt_tokens(const std::string& text) const {
  std::vector<TokenId> ids = tokenizer->encode(text, true);
  if (!ids.empty()) return ids;
  if (!facts.bos) throw Error("the prompt is empty, and this model has no BOS token to begin with");
  return {*facts.bos};
}

void LocalEngine::size_pools(const EngineOptions& options) {
  const backend::ModelShape& shape = backend->shape();
  const bool memory_given = options.num_blocks > 0 || !options.kv_cache_memory.empty();
  const std::optional<backend::DeviceMemory> memory = backend->memory();
  if (!memory && !memory_given) {
    throw Error("/proc does not say how much memory is free: give --kv-cache-memory or --num-blocks");
  }
  const uint32_t longest = options.max_model_len > 0 ? options.max_model_len : facts.max_positions;
  control::SchedulerConfig& scheduler = config.scheduler;
  scheduler.block_size = options.block_size;
  scheduler.kv_windows = shape.kv_windows;
  scheduler.num_blocks = pick_num_blocks(options, shape, longest, memory ? memory->kv_bytes : 0);
  scheduler.max_num_seqs = options.max_num_seqs;
  scheduler.max_waiting = options.max_waiting.value_or(options.default_max_waiting);
  if (options.max_waiting_per_tenant) config.max_waiting_per_tenant = *options.max_waiting_per_tenant;
  scheduler.enable_prefix_caching = options.enable_prefix_caching;
  scheduler.max_model_len = pick_max_model_len(options, facts, shape, scheduler.num_blocks);
  const uint64_t block_bytes = shape.kv_block_bytes(scheduler.block_size);
  apply_policy_options(options.policies, block_bytes, scheduler);
  if (memory_given || scheduler.num_host_blocks > 0) {
    const uint64_t blocks = uint64_t{scheduler.num_blocks} + scheduler.num_host_blocks;
    warn_of_too_much(options, blocks * block_bytes, memory);
  }
  backend->allocate({.num_blocks = scheduler.num_blocks,
                     .num_host_blocks = scheduler.num_host_blocks,
                     .block_size = scheduler.block_size,
                     .num_slots = scheduler.max_num_seqs,
                     .max_model_len = scheduler.max_model_len});
}

void LocalEngine::set_budget(const EngineOptions& options) {
  control::SchedulerConfig& scheduler = config.scheduler;
  const std::optional<uint32_t> given = given_budget(options);
  // A measurement takes a moment.
  const bool weighs = weighs_costs(options.policies);
  const backend::StepSpeeds speeds = given && !weighs ? backend::StepSpeeds{} : backend->probe(kStepTime);
  if (weighs) scheduler.costs = speeds.costs;
  if (given) {  // it is used unchanged, whatever the context
    scheduler.max_num_batched_tokens = *given;
    return;
  }
  const auto tokens = speeds.varies ? auto_step_tokens : auto_budget;
  scheduler.max_num_batched_tokens = tokens(speeds.tokens_a_step, options.max_num_seqs);
  scheduler.context_cost = speeds.context_cost;
  if (speeds.varies) config.step_time = static_cast<Nanos>(kStepTime / options.sim_speed);
}

/// Where the memory of the largest step is not to be had at once, smaller ones may still work.
void LocalEngine::reserve_step() {
  try {
    backend->reserve(config.scheduler.max_num_batched_tokens);
  } catch (const Error& error) {
    log_warning(fmt::format("the memory of a step of {} tokens is not there yet: {}",
                            with_commas(config.scheduler.max_num_batched_tokens), error.what()));
  }
}

void LocalEngine::log_sizes(const std::string& served_name) const {
  const control::SchedulerConfig& scheduler = config.scheduler;
  log_info(fmt::format("{}: {}", served_name, backend->describe()));
  const uint64_t bytes = scheduler.num_blocks * backend->shape().kv_block_bytes(scheduler.block_size);
  log_info(fmt::format(
      "K/V: {} blocks of {} tokens{}, sequences of up to {} tokens, {} at once, up to {} tokens a step",
      with_commas(scheduler.num_blocks), scheduler.block_size,
      backend->kv_facts().empty() ? "" : fmt::format(" ({})", human_bytes(bytes)), scheduler.max_model_len,
      scheduler.max_num_seqs, scheduler.max_num_batched_tokens));
}

}  // namespace quire::startup
