#include "cli/local_engine.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include <fmt/format.h>

#include "backend/cpu/inspect.h"
#include "backend/sim/paced_executor.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine_limits.h"
#include "cli/model_files.h"
#include "cli/output_file.h"
#include "cli/terminal.h"
#include "cli/warm_file.h"
#include "control/kv/windows.h"
#include "formats/model_config.h"
#include "model/kv_groups.h"

namespace quire::cli {
namespace {

constexpr double kStepSeconds = 0.35;  // the target time of a step, see docs/architecture.md
constexpr uint32_t kProbeTokens = 128;
constexpr uint32_t kProbeFew = 16;        // cost little ...
constexpr uint32_t kProbeContext = 2048;  // ... and show, after this much context, what the context adds
constexpr uint32_t kMaxAutoBudget = 8192;

std::optional<DType> pick_dtype(const std::string& name, const char* flag) {
  if (name == "auto") return std::nullopt;
  const auto dtype = parse_dtype(name);
  if (!dtype || !is_float(*dtype)) {
    throw Error(fmt::format("{}: '{}' is none of auto, f32, f16, bf16", flag, name));
  }
  return dtype;
}

formats::FileAccess file_access(const ModelOptions& options) {
  return options.no_mmap ? formats::FileAccess::kRead : formats::FileAccess::kMap;
}

/// Checks the output files of a run: different files, and each of its own kind. Throws Error before any is
/// opened.
void check_outputs(const EngineOptions& options) {
  const std::string beside = options.prefix_cache_file.empty() ? "" : options.prefix_cache_file + ".part";
  const Output outputs[] = {{"--prefix-cache-file", options.prefix_cache_file},
                            {"--prefix-cache-file", beside},
                            {"--step-trace", options.step_trace},
                            {"--decision-log", options.decision_log}};
  refuse_same_file(outputs);
  check_output_file(options.step_trace);
  check_output_file(options.decision_log);
  if (!options.step_trace.empty()) engine::StepTrace::check_place(options.step_trace);
  if (!options.decision_log.empty()) record::RunWriter::check_place(options.decision_log);
}

/// The memory that is left beside the weights: `mapped`, the bytes of mapped weights, count as free for the
/// system.
std::optional<MemoryLimit> memory_beside_weights(uint64_t mapped) {
  std::optional<MemoryLimit> memory = available_memory();
  if (memory) memory->bytes -= std::min(memory->bytes, mapped);
  return memory;
}

/// K/V memory by default.
uint64_t default_pool_memory(const std::optional<MemoryLimit>& available) {
  if (!available) {
    throw Error(
        "how much memory is free is not to be found in /proc: give --kv-cache-memory or --num-blocks");
  }
  return available->bytes / 2;
}

/// A given size is used unchanged, but if less memory is available, the user should know before the system
/// kills the process.
void warn_of_too_much(const EngineOptions& options, uint64_t bytes,
                      const std::optional<MemoryLimit>& available) {
  if (!available || bytes <= available->bytes) return;
  const char* flag = options.num_blocks > 0             ? "--num-blocks"
                     : !options.kv_cache_memory.empty() ? "--kv-cache-memory"
                                                        : "--swap-space";
  log_warning(
      fmt::format("{}: K/V takes {}, and {} of memory can be had ({}): the system may end this process when "
                  "the pool fills",
                  flag, human_bytes(bytes), human_bytes(available->bytes), available->source));
}

uint32_t pick_threads(uint32_t given) {
  const CpuLimit usable = usable_cpus();
  if (given > usable.threads) {
    log_warning(fmt::format("--threads: {} threads share {} CPUs ({}): they wait for one another", given,
                            usable.threads, usable.source));
  }
  return given > 0 ? given : usable.threads;
}

uint32_t pick_num_blocks(const EngineOptions& options, const ModelShape& shape, uint32_t longest,
                         uint64_t memory_limit) {
  if (options.num_blocks > 0) return options.num_blocks;
  const uint64_t block_bytes = shape.kv_block_bytes(options.block_size);
  uint64_t memory = 0;
  if (options.kv_cache_memory.empty()) {
    // All sequences have the greatest length, and one of them computes a long prompt.
    const auto held = [&](uint64_t chunk) {
      return control::blocks_held(shape.kv_windows, longest, chunk, options.block_size);
    };
    const uint64_t most = held(1) * (options.max_num_seqs - 1) + held(kMaxAutoBudget);
    memory = std::min(memory_limit, most * block_bytes);
  } else {
    memory = parse_bytes(options.kv_cache_memory, "--kv-cache-memory");
  }
  const uint64_t blocks = memory / block_bytes;
  const uint64_t most = UINT32_MAX / options.block_size;
  if (blocks == 0) {
    throw Error(fmt::format("--kv-cache-memory: {} do not hold one K/V block of {}", human_bytes(memory),
                            human_bytes(block_bytes)));
  }
  if (blocks > most) {
    throw Error(fmt::format("--kv-cache-memory: {} are more than the {} K/V blocks of {} that there can be",
                            human_bytes(memory), with_commas(most), human_bytes(block_bytes)));
  }
  return static_cast<uint32_t>(blocks);
}

/// The measured cost of a prompt token.
struct TokenCost {
  double seconds = 0;       // without context
  double context_part = 0;  // what each token of context adds, as a fraction of `seconds`
  uint32_t tokens_a_step() const {
    return static_cast<uint32_t>(std::min<double>(kStepSeconds / seconds, kMaxAutoBudget)) / 16 * 16;
  }
};

/// Measured on the empty pool. `longest`: the longest sequence.
TokenCost probe_prefill(LoadedModel& model, backend::cpu::KvCache& cache, uint32_t longest) {
  const uint32_t room = std::min(cache.num_blocks() / cache.num_groups() * cache.block_size(), longest);
  const uint32_t length = std::min(kProbeTokens, room);
  const uint32_t context = std::min(kProbeContext, room - length);
  std::vector<TokenId> tokens(length);
  const uint32_t vocab = model.decoder->config().vocab_size;
  for (uint32_t i = 0; i < length; ++i) tokens[i] = static_cast<TokenId>(i * 7919 % vocab);
  const uint32_t rows = (context + length + cache.block_size() - 1) / cache.block_size();
  const auto tables = model::consecutive_tables(cache.num_groups(), rows, 0);
  const auto seconds = [&](uint32_t position, uint32_t count) {
    const backend::cpu::DecoderSeq seq{count, position, tables, 1};
    const auto start = std::chrono::steady_clock::now();
    model.decoder->forward(model.context, cache, std::span(tokens).first(count), {&seq, 1});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const uint32_t few = std::min(kProbeFew, length);
  for (const uint32_t position : {0U, context}) seconds(position, few);  // warm up the threads and the memory
  const double first = seconds(0, length);
  // The faster one, since StepBudget never goes above it.
  TokenCost cost{.seconds = std::min(first, seconds(0, length)) / length};
  const double more = seconds(context, few) - seconds(0, few);
  if (context > 0 && more > 0) cost.context_part = more / few / context / cost.seconds;
  return cost;
}

/// Whether a decision depends on the cost of a token.
bool weighs_costs(const PolicyOptions& options) {
  return options.preemption == control::PreemptionKind::kAuto ||
         options.scheduling == control::SchedulingKind::kSrpt ||
         options.scheduling == control::SchedulingKind::kSlo;
}

template <class Probe>
uint32_t pick_budget(const EngineOptions& options, Probe&& probe) {
  const std::string& given = options.max_num_batched_tokens;
  if (given == "auto") return std::max<uint32_t>(probe(), options.max_num_seqs);
  uint32_t budget = 0;
  const auto [end, failed] = std::from_chars(given.data(), given.data() + given.size(), budget);
  if (failed != std::errc() || *end != '\0' || budget < options.max_num_seqs) {
    throw Error(fmt::format(
        "--max-num-batched-tokens: '{}' is neither 'auto' nor a number from --max-num-seqs ({}) up", given,
        options.max_num_seqs));
  }
  return budget;
}

/// A decoded token costs several of a prompt, since the weights are read for a few at a time. Blocks are
/// copied within the machine's memory.
control::CostHints costs_of(const TokenCost& token, uint64_t block_bytes) {
  constexpr double kCopyBytesPerSecond = 4e9;
  control::CostHints costs;
  costs.prefill_token = std::max<Nanos>(1, static_cast<Nanos>(token.seconds * 1e9));
  costs.decode_token = 4 * costs.prefill_token;
  costs.swap_block =
      std::max<Nanos>(1, static_cast<Nanos>(static_cast<double>(block_bytes) / kCopyBytesPerSecond * 1e9));
  return costs;
}

/// The longest sequence that is served.
uint32_t pick_max_model_len(const EngineOptions& options, const model::ModelConfig& config,
                            const ModelShape& shape, uint32_t num_blocks) {
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
    throw Error(fmt::format("--num-blocks: {} blocks of K/V hold no token of a model with {} K/V groups",
                            num_blocks, shape.kv_windows.size()));
  }
  log_warning(
      fmt::format("the model can take {} tokens, the K/V pool {}: sequences end there", wanted, fits));
  return static_cast<uint32_t>(fits);
}

}  // namespace

model::ModelConfig config_of(const ModelOptions& options) {
  model::ModelConfig config = formats::load_model_config(checked_model(options.model));
  model::limit_windows(config, options.sliding_window);
  return config;
}

LoadedModel::LoadedModel(const ModelOptions& options, model::ModelConfig config, uint32_t longest)
    : dir(options.model),
      pool(pick_threads(options.threads)),
      context{kernels::pick_isa(options.isa, "--isa"), pool},
      decoder(backend::cpu::Decoder::load(dir, std::move(config),
                                          {.compute = pick_dtype(options.dtype, "--dtype"),
                                           .quantization = pick_quantization(options.quantization),
                                           .own_blocks = options.quantization == "auto",
                                           .max_positions = longest,
                                           .pack_cache = options.pack_cache,
                                           .access = file_access(options)},
                                          context)) {}

LocalEngine::LocalEngine(const EngineOptions& options, const std::string& served_name)
    : tokenizer(load_tokenizer(checked_model(options.model.model))),
      defaults(formats::load_sampling_defaults(options.model.model)),
      metrics(served_name) {
  // Before the weights are read, which may take minutes.
  check_outputs(options);
  if (options.block_size % 16 != 0) {
    throw Error(fmt::format("--block-size: {} is no multiple of 16", options.block_size));
  }
  if (!options.prefix_cache_file.empty() && (!options.enable_prefix_caching || options.device == "sim")) {
    throw Error("--prefix-cache-file: there is no prefix cache to keep");
  }
  if (!options.prefix_cache_file.empty()) engine::check_prefix_file_place(options.prefix_cache_file);
  if (options.model.pack_cache && options.device == "sim") {
    throw Error("--pack-cache: a simulated device packs no weights");
  }
  if (options.device == "sim") {
    simulate(options, served_name);
  } else {
    load(options, served_name);
  }
  config.eos = facts.eos;
  config.vocab_size = facts.vocab_size;
  if (!options.step_trace.empty()) trace = std::make_unique<engine::StepTrace>(options.step_trace);
  if (!options.decision_log.empty()) record = std::make_unique<record::RunWriter>(options.decision_log);
  engine = std::make_unique<engine::Engine>(config, *tokenizer, *executor, clock, trace.get(), &metrics,
                                            record.get(), warm.get());
}

void LocalEngine::load(const EngineOptions& options, const std::string& served_name) {
  model = std::make_unique<LoadedModel>(options.model, options.max_model_len);
  facts = model->decoder->config();
  ModelShape shape = model->decoder->shape();
  const DType kv_dtype = pick_kv_dtype(options.kv_cache_dtype).value_or(model->decoder->compute_dtype());
  backend::cpu::set_kv_dtype(shape, kv_dtype);
  const bool memory_given = options.num_blocks > 0 || !options.kv_cache_memory.empty();
  const std::optional<MemoryLimit> available = memory_beside_weights(model->decoder->mapped_weight_bytes());
  size_pool(options, shape, memory_given ? 0 : default_pool_memory(available));
  control::SchedulerConfig& scheduler = config.scheduler;
  if (memory_given || scheduler.num_host_blocks > 0) {
    const uint64_t blocks = uint64_t{scheduler.num_blocks} + scheduler.num_host_blocks;
    warn_of_too_much(options, blocks * shape.kv_block_bytes(scheduler.block_size), available);
  }
  cache =
      std::make_unique<backend::cpu::KvCache>(facts, kv_dtype, scheduler.num_blocks, scheduler.block_size);
  std::optional<TokenCost> cost;
  const auto probe = [&] {  // a given budget is used unchanged, whatever the context
    cost = probe_prefill(*model, *cache, scheduler.max_model_len);
    scheduler.context_cost = static_cast<uint32_t>(std::min(cost->context_part * 1e6, 1e6));
    config.step_time = static_cast<Nanos>(kStepSeconds * 1e9);
    return cost->tokens_a_step();
  };
  scheduler.max_num_batched_tokens = pick_budget(options, probe);
  if (weighs_costs(options.policies)) {
    if (!cost) cost = probe_prefill(*model, *cache, scheduler.max_model_len);
    scheduler.costs = costs_of(*cost, shape.kv_block_bytes(scheduler.block_size));
  }
  if (scheduler.num_host_blocks > 0) {
    host_cache = std::make_unique<backend::cpu::KvCache>(facts, kv_dtype, scheduler.num_host_blocks,
                                                         scheduler.block_size);
  }
  executor = std::make_unique<backend::cpu::CpuExecutor>(*model->decoder, *cache, model->context,
                                                         options.max_num_seqs, host_cache.get());
  if (!options.prefix_cache_file.empty()) {
    const uint32_t longest = options.max_model_len > 0 ? options.max_model_len : facts.max_positions;
    warm = std::make_unique<WarmFile>(
        options.prefix_cache_file,
        kv_facts(options.model.model, facts, *model->decoder, kv_dtype, model->context.isa, longest), *cache,
        file_access(options.model));
  }
  log_info(fmt::format("{}: {} parameters, {} weights, kernels {} on {} threads", served_name,
                       with_commas(shape.num_parameters), model->decoder->weight_formats(),
                       kernels::isa_name(model->context.isa), model->pool.num_threads()));
  log_info(fmt::format(
      "K/V: {} blocks of {} tokens ({}, {}), sequences of up to {} tokens, {} at once, {} tokens a step",
      with_commas(scheduler.num_blocks), scheduler.block_size,
      human_bytes(scheduler.num_blocks * shape.kv_block_bytes(scheduler.block_size)), dtype_name(kv_dtype),
      scheduler.max_model_len, scheduler.max_num_seqs, scheduler.max_num_batched_tokens));
}

void LocalEngine::simulate(const EngineOptions& options, const std::string& served_name) {
  facts = config_of(options.model);
  const DType dtype = pick_dtype(options.model.dtype, "--dtype").value_or(facts.dtype);
  const DType kv_dtype = pick_kv_dtype(options.kv_cache_dtype).value_or(dtype);
  size_pool(options, backend::cpu::model_shape(facts, kv_dtype), UINT64_MAX);
  const backend::sim::CostModel cost = options.cost.model();
  control::SchedulerConfig& scheduler = config.scheduler;
  scheduler.max_num_batched_tokens = pick_budget(options, [&] {
    return std::min<uint64_t>(cost.prefill_tokens_in(static_cast<Nanos>(kStepSeconds * 1e9)), kMaxAutoBudget);
  });
  scheduler.costs = cost.hints(scheduler.max_num_seqs);
  simulated = std::make_unique<backend::sim::SimExecutor>(
      scheduler, cost,
      backend::sim::SimTokens{.vocab_size = facts.vocab_size,
                              .sayable = sayable_tokens(*tokenizer, facts.vocab_size)},
      static_cast<uint32_t>(options.cost.steps_in_flight));
  executor = std::make_unique<backend::sim::PacedExecutor>(*simulated,
                                                           static_cast<uint32_t>(options.sim_speed * 100));
  log_info(fmt::format("{}: simulated, at {} times the speed: the words are arbitrary", served_name,
                       options.sim_speed));
  log_info(fmt::format("K/V: {} blocks of {} tokens, sequences of up to {} tokens, {} at once, {} a step",
                       with_commas(scheduler.num_blocks), scheduler.block_size, scheduler.max_model_len,
                       scheduler.max_num_seqs, scheduler.max_num_batched_tokens));
}

void LocalEngine::size_pool(const EngineOptions& options, const ModelShape& shape, uint64_t memory_limit) {
  const uint32_t longest = options.max_model_len > 0 ? options.max_model_len : facts.max_positions;
  control::SchedulerConfig& scheduler = config.scheduler;
  scheduler.block_size = options.block_size;
  scheduler.kv_windows = shape.kv_windows;
  scheduler.num_blocks = pick_num_blocks(options, shape, longest, memory_limit);
  scheduler.max_num_seqs = options.max_num_seqs;
  scheduler.max_waiting = options.max_waiting.value_or(options.default_max_waiting);
  if (options.max_waiting_per_tenant) config.max_waiting_per_tenant = *options.max_waiting_per_tenant;
  scheduler.enable_prefix_caching = options.enable_prefix_caching;
  scheduler.max_model_len = pick_max_model_len(options, facts, shape, scheduler.num_blocks);
  apply_policy_options(options.policies, shape.kv_block_bytes(scheduler.block_size), scheduler);
}

std::string model_name(const std::filesystem::path& path) {
  const auto clean = std::filesystem::weakly_canonical(path);
  return (clean.extension() == ".gguf" ? clean.stem() : clean.filename()).string();
}

}  // namespace quire::cli
