#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/ids.h"
#include "startup/devices.h"
#include "startup/model_options.h"
#include "startup/policy_options.h"
#include "startup/sim_options.h"

namespace quire::startup {

/// The prompt tokens of a step, if no budget is given: what kStepTime computes, see docs/architecture.md.
/// Eight streams with short contexts then wait 0.3 s at most where steps of the same work differ by 10 %.
inline constexpr Nanos kStepTime = 240'000'000;
inline constexpr uint32_t kMaxAutoBudget = 8192;
constexpr uint32_t auto_budget(uint64_t tokens_a_step, uint32_t max_num_seqs) {
  const uint64_t fits = tokens_a_step < kMaxAutoBudget ? tokens_a_step : kMaxAutoBudget;
  return fits < max_num_seqs ? max_num_seqs : static_cast<uint32_t>(fits);
}
/// All tokens of such a step: a decode of each sequence comes besides (engine::StepBudget).
constexpr uint32_t auto_step_tokens(uint64_t tokens_a_step, uint32_t max_num_seqs) {
  return auto_budget(tokens_a_step, max_num_seqs) + max_num_seqs;
}

/// What runs beside the engine and predicts it.
struct ShadowOptions {
  std::string cost_file;  // of a fitted cost model; empty: no shadow
  bool promises = false;  // --admission slo
};

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
  std::string step_log;
  std::string step_log_max = "1GiB";
  std::string decision_log;
  std::string decision_log_max;  // empty: no limit
  std::string prefix_cache_file;
  const Device* device = &default_device();
  uint32_t device_index = 0;                     // of --device cuda:N
  std::optional<double> gpu_memory_utilization;  // of a GPU's memory, by others too; only with one
  bool fast_gemm = false;                        // of a GPU: the promise of equal bits is given up
  CostOptions cost;                              // of a simulated device
  double sim_speed = 1;                          // factor of the simulated speed
  ShadowOptions shadow;
  std::string sim_answers;  // a file (engine::AnswerScript); empty: arbitrary words
};

/// max_num_batched_tokens; nullopt: "auto". Throws Error if it is neither a number nor enough for
/// max_num_seqs.
std::optional<uint32_t> given_budget(const EngineOptions& options);

/// setup_of with the formats of the options.
backend::sim::DeviceSetup setup_of(const EngineOptions& options);

}  // namespace quire::startup
