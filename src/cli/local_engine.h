#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "cli/policy_options.h"
#include "cli/sim_options.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/step_trace.h"
#include "exec/cpu_executor.h"
#include "kernels/context.h"
#include "kernels/weight_format.h"
#include "model/config.h"
#include "model/decoder.h"
#include "record/run_record.h"
#include "sim/sim_executor.h"
#include "text/tokenizer.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quire::cli {

/// The machine's side of the options: model, number format, threads.
struct ModelOptions {
  std::string model;
  std::string dtype = "auto";
  std::string quantization = "auto";
  std::string isa = "auto";
  uint32_t threads = 0;  // 0: one a usable CPU
  uint32_t sliding_window = 0;
  std::optional<std::string> pack_cache;  // a folder; empty: the model's own
  bool no_mmap = false;
};
void add_model_options(CLI::App& command, ModelOptions& options);

/// Adds --kv-cache-dtype.
CLI::Option* add_kv_dtype_option(CLI::App& command, std::string& name);
/// Its value; nullopt: the compute type.
std::optional<DType> pick_kv_dtype(const std::string& name);

/// The format that --quantization makes of the matrices; nullopt: it makes none ("auto", "none").
std::optional<WeightFormat> pick_quantization(const std::string& name);

/// The model's, as far as the options leave it. Throws Error that says what a model is, if this is none.
ModelConfig config_of(const ModelOptions& options);

/// The engine's side: how much runs at once and in how much memory.
struct EngineOptions {
  ModelOptions model;
  std::string kv_cache_dtype = "auto";
  uint32_t max_model_len = 0;  // 0: the model's, as far as the pool holds it
  uint32_t max_num_seqs = 64;
  std::string max_num_batched_tokens = "auto";
  uint32_t block_size = 16;
  uint32_t num_blocks = 0;      // 0: from kv_cache_memory
  std::string kv_cache_memory;  // empty: half of what is free
  bool enable_prefix_caching = true;
  PolicyOptions policies;
  std::optional<uint32_t> max_waiting;
  uint32_t default_max_waiting = 1024;
  std::optional<uint32_t> max_waiting_per_tenant;  // empty: no bound of its own
  std::string step_trace;
  std::string decision_log;
  std::string prefix_cache_file;
  std::string device = "cpu";  // or "sim": no weights are read, steps last what `cost` says
  CostOptions cost;
  double sim_speed = 1;  // times as fast
};
void add_engine_options(CLI::App& command, EngineOptions& options);

/// As far as they mean something for one sequence after the other.
void add_single_engine_options(CLI::App& command, EngineOptions& options);

/// --device and what a simulated one takes.
void add_device_options(CLI::App& command, EngineOptions& options);

/// A model in memory with all it needs to compute.
struct LoadedModel {
  /// `longest`: see Decoder::load.
  LoadedModel(const ModelOptions& options, ModelConfig config, uint32_t longest = 0);
  explicit LoadedModel(const ModelOptions& options, uint32_t longest = 0)
      : LoadedModel(options, config_of(options), longest) {}

  std::filesystem::path dir;
  ThreadPool pool;
  KernelContext context;
  std::unique_ptr<Decoder> decoder;
};

/// A model with its tokenizer, pool, scheduler and engine, running.
struct LocalEngine {
  LocalEngine(const EngineOptions& options, const std::string& served_name);

  std::unique_ptr<Tokenizer> tokenizer;
  SamplingDefaults defaults;
  ModelConfig facts;
  std::unique_ptr<LoadedModel> model;  // nullptr on a simulated device, as is `cache`
  EngineConfig config;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<KvCache> host_cache;     // for swapping; nullptr without
  std::unique_ptr<SimExecutor> simulated;  // nullptr unless there is one; `executor` keeps its pace
  std::unique_ptr<Executor> executor;
  SteadyClock clock;
  std::unique_ptr<StepTrace> trace;
  std::unique_ptr<RunWriter> record;
  std::unique_ptr<WarmStart> warm;
  EngineMetrics metrics;
  std::unique_ptr<Engine> engine;  // last: it uses all of the above

 private:
  void load(const EngineOptions& options, const std::string& served_name);
  void simulate(const EngineOptions& options, const std::string& served_name);
  /// The pool and the lengths; `memory_limit`: bytes that K/V may take, by default.
  void size_pool(const EngineOptions& options, const ModelShape& shape, uint64_t memory_limit);
};

/// The last part of the path without ".gguf", what a served model is called by default.
std::string model_name(const std::filesystem::path& path);

}  // namespace quire::cli
