#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/policy_options.h"
#include "cli/sim_options.h"
#include "tensor/dtype.h"
#include "tensor/weight_format.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quire::cli {

/// The options of the model and the machine: model, number format, threads.
struct ModelOptions {
  std::string model;
  std::string dtype = "auto";
  std::string quantization = "auto";
  std::string isa = "auto";
  uint32_t threads = 0;  // 0: one per usable CPU
  uint32_t sliding_window = 0;
  std::optional<std::string> pack_cache;  // a folder; empty: the folder of the model
  bool no_mmap = false;
};
void add_model_options(CLI::App& command, ModelOptions& options);

/// Adds --kv-cache-dtype.
CLI::Option* add_kv_dtype_option(CLI::App& command, std::string& name);
/// The value of --kv-cache-dtype; nullopt: the compute type.
std::optional<DType> pick_kv_dtype(const std::string& name);

/// The format to which --quantization converts the matrices; nullopt: none ("auto", "none").
std::optional<WeightFormat> pick_quantization(const std::string& name);

/// The options of the engine: how much runs at once, and in how much memory.
struct EngineOptions {
  ModelOptions model;
  std::string kv_cache_dtype = "auto";
  uint32_t max_model_len = 0;  // 0: that of the model, limited by the pool
  uint32_t max_num_seqs = 64;
  std::string max_num_batched_tokens = "auto";
  uint32_t block_size = 16;
  uint32_t num_blocks = 0;      // 0: from kv_cache_memory
  std::string kv_cache_memory;  // empty: half of the free memory
  bool enable_prefix_caching = true;
  PolicyOptions policies;
  std::optional<uint32_t> max_waiting;
  uint32_t default_max_waiting = 1024;
  std::optional<uint32_t> max_waiting_per_tenant;  // empty: no separate limit
  std::string step_trace;
  std::string decision_log;
  std::string prefix_cache_file;
  std::string device = "cpu";  // or "sim": no weights are read, and `cost` determines the duration of steps
  CostOptions cost;
  double sim_speed = 1;  // factor of the simulated speed
};
void add_engine_options(CLI::App& command, EngineOptions& options);

/// The engine options that matter for one sequence at a time.
void add_single_engine_options(CLI::App& command, EngineOptions& options);

/// --device and the flags of a simulated device.
void add_device_options(CLI::App& command, EngineOptions& options);

}  // namespace quire::cli
