#include "startup/roofline.h"

#include <algorithm>
#include <map>

#include "backend/cuda/launches.h"

namespace quire::startup {
namespace {

/// The rate of a matmul with these weights: that of the format with most bytes.
double arithmetic_rate(const backend::cpu::WeightSizes& weights, const backend::MachineSpeed& speed) {
  const auto most = std::max_element(weights.packed.begin(), weights.packed.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most->first == "f32") return speed.f32;
  if (most->first == "f16") return speed.f16;
  return most->first == "bf16" ? speed.bf16 : speed.integer;
}

}  // namespace

backend::sim::RooflineCost roofline_of(const model::ModelConfig& config, const backend::ModelShape& shape,
                                       const backend::cpu::WeightSizes& weights,
                                       const backend::MachineSpeed& speed, uint32_t block_size) {
  backend::sim::RooflineCost cost;
  cost.bandwidth = speed.bandwidth;
  cost.rate = arithmetic_rate(weights, speed);
  cost.host_link = speed.host_link;
  cost.overhead_s = speed.launch * backend::cuda::step_launches(config);
  cost.weight_bytes = weights.packed_bytes();
  cost.expert_bytes = weights.expert_bytes;
  if (config.moe.num_experts > 0) cost.chosen = static_cast<double>(config.moe.top) / config.moe.num_experts;
  cost.token_ops = 2 * (static_cast<double>(weights.layer_parameters) +
                        cost.chosen * static_cast<double>(weights.expert_parameters));
  cost.row_ops = 2 * static_cast<double>(weights.head_parameters);
  cost.block_bytes = shape.kv_block_bytes(block_size);
  std::map<uint32_t, uint32_t> layers;  // by window, as group_layers sees them
  for (const uint32_t window : config.windows) ++layers[window < config.max_positions ? window : 0];
  for (const auto& [window, count] : layers) {
    // q.k and the weighted sum of v: a multiply-add each for every head and element.
    cost.attention.push_back({.window = window,
                              .layers = count,
                              .token_bytes = shape.kv_bytes_per_token() / shape.num_layers,
                              .pair_ops = 4.0 * shape.num_heads * shape.head_dim});
  }
  return cost;
}

}  // namespace quire::startup
