#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "cli/policy_options.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/step_trace.h"
#include "exec/cpu_executor.h"
#include "kernels/context.h"
#include "model/config.h"
#include "model/decoder.h"
#include "record/run_record.h"
#include "text/tokenizer.h"

namespace CLI {
class App;
}

namespace quire::cli {

/// The machine's side of the options: model, number format, threads.
struct ModelOptions {
  std::string model;
  std::string dtype = "auto";
  std::string isa = "auto";
  uint32_t threads = 0;  // 0: one a core
};
void add_model_options(CLI::App& command, ModelOptions& options);

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
  uint32_t max_waiting = 1024;
  std::string step_trace;
  std::string decision_log;
};
void add_engine_options(CLI::App& command, EngineOptions& options);

/// A model in memory with all it needs to compute.
struct LoadedModel {
  /// `longest`: see Decoder::load.
  LoadedModel(const ModelOptions& options, ModelConfig config, uint32_t longest = 0);
  explicit LoadedModel(const ModelOptions& options, uint32_t longest = 0)
      : LoadedModel(options, load_model_config(options.model), longest) {}

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
  LoadedModel model;
  EngineConfig config;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<KvCache> host_cache;  // for swapping; null without
  std::unique_ptr<CpuExecutor> executor;
  SteadyClock clock;
  std::unique_ptr<StepTrace> trace;
  std::unique_ptr<RunWriter> record;
  EngineMetrics metrics;
  std::unique_ptr<Engine> engine;  // last: it uses all of the above
};

/// The last part of the path without ".gguf", what a served model is called by default.
std::string model_name(const std::filesystem::path& path);

}  // namespace quire::cli
