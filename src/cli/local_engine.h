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

/// The config of the model, changed by the options. If it is not a model, throws Error that says what a model
/// is.
model::ModelConfig config_of(const ModelOptions& options);

/// A model in memory with everything it needs to compute.
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
  std::unique_ptr<LoadedModel> model;  // nullptr on a simulated device; so is `cache`
  engine::EngineConfig config;
  std::unique_ptr<backend::cpu::KvCache> cache;
  std::unique_ptr<backend::cpu::KvCache> host_cache;  // the host pool; nullptr without swapping
  std::unique_ptr<backend::sim::SimExecutor>
      simulated;  // nullptr unless the device is simulated; `executor` then paces it
  std::unique_ptr<backend::Executor> executor;
  SteadyClock clock;
  std::unique_ptr<engine::StepTrace> trace;
  std::unique_ptr<record::RunWriter> record;
  std::unique_ptr<engine::WarmStart> warm;
  engine::EngineMetrics metrics;
  std::unique_ptr<engine::Engine> engine;  // the last member, because it uses all of the above

 private:
  void load(const EngineOptions& options, const std::string& served_name);
  void simulate(const EngineOptions& options, const std::string& served_name);
  /// Sets the pool size and the lengths; `memory_limit`: the default for the bytes of K/V.
  void size_pool(const EngineOptions& options, const ModelShape& shape, uint64_t memory_limit);
};

/// The last part of the path without ".gguf": the default name of a served model.
std::string model_name(const std::filesystem::path& path);

}  // namespace quire::cli
