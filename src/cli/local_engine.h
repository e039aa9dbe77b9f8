#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/cpu/cpu_executor.h"
#include "backend/cpu/decoder.h"
#include "backend/sim/sim_executor.h"
#include "base/clock.h"
#include "cli/engine_options.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/step_trace.h"
#include "kernels/context.h"
#include "model/config.h"
#include "record/run_record.h"
#include "tokenize/tokenizer.h"

namespace quire::cli {

/// The model's, as far as the options leave it. Throws Error that says what a model is, if this is none.
model::ModelConfig config_of(const ModelOptions& options);

/// A model in memory with all it needs to compute.
struct LoadedModel {
  /// `longest`: see Decoder::load.
  LoadedModel(const ModelOptions& options, model::ModelConfig config, uint32_t longest = 0);
  explicit LoadedModel(const ModelOptions& options, uint32_t longest = 0)
      : LoadedModel(options, config_of(options), longest) {}

  std::filesystem::path dir;
  ThreadPool pool;
  kernels::KernelContext context;
  std::unique_ptr<backend::cpu::Decoder> decoder;
};

/// A model with its tokenizer, pool, scheduler and engine, running.
struct LocalEngine {
  LocalEngine(const EngineOptions& options, const std::string& served_name);

  std::unique_ptr<tokenize::Tokenizer> tokenizer;
  SamplingDefaults defaults;
  model::ModelConfig facts;
  std::unique_ptr<LoadedModel> model;  // nullptr on a simulated device, as is `cache`
  engine::EngineConfig config;
  std::unique_ptr<backend::cpu::KvCache> cache;
  std::unique_ptr<backend::cpu::KvCache> host_cache;  // for swapping; nullptr without
  std::unique_ptr<backend::sim::SimExecutor>
      simulated;  // nullptr unless there is one; `executor` keeps its pace
  std::unique_ptr<backend::Executor> executor;
  SteadyClock clock;
  std::unique_ptr<engine::StepTrace> trace;
  std::unique_ptr<record::RunWriter> record;
  std::unique_ptr<engine::WarmStart> warm;
  engine::EngineMetrics metrics;
  std::unique_ptr<engine::Engine> engine;  // last: it uses all of the above

 private:
  void load(const EngineOptions& options, const std::string& served_name);
  void simulate(const EngineOptions& options, const std::string& served_name);
  /// The pool and the lengths; `memory_limit`: bytes that K/V may take, by default.
  void size_pool(const EngineOptions& options, const ModelShape& shape, uint64_t memory_limit);
};

/// The last part of the path without ".gguf", what a served model is called by default.
std::string model_name(const std::filesystem::path& path);

}  // namespace quire::cli
