#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/weights.h"
#include "kernels/context.h"
#include "model/config.h"
#include "tensor/buffer.h"

namespace quire::backend::cpu {

/// The second half of a layer: one gated feed-forward, or a few of many that a router chooses for each row.
/// Keeps its activations from call to call. Not thread-safe (uses the context's threads itself).
class FeedForwardPass {
 public:
  /// out [rows, hidden] = what the layer's feed-forward makes of x [rows, hidden]; they must not overlap. A
  /// row of out depends on that row of x alone, and only experts that some row chose compute.
  void run(kernels::KernelContext& context, const model::ModelConfig& config, const LayerWeights& layer,
           const float* x, size_t rows, float* out);

 private:
  void gated(kernels::KernelContext& context, const model::ModelConfig& config, const FeedForward& weights,
             const float* x, size_t rows, float* out);
  void sort_by_expert(size_t rows, const model::MoeConfig& moe);
  void experts(kernels::KernelContext& context, const model::ModelConfig& config, const LayerWeights& layer,
               const float* x, size_t rows, float* out);

  Buffer gate_up_;  // [rows that go through together, 2 ffn]
  Buffer ffn_;      // [those, ffn]
  // Of the experts. A row stands in `chosen_` and `places_` as often as it has experts.
  Buffer routed_;                  // [rows, experts]: the router's logits
  Buffer weights_;                 // [rows, top]
  Buffer gathered_;                // [rows * top, hidden]: rows by expert, in order of row
  Buffer computed_;                // [rows * top, hidden]
  std::vector<uint32_t> chosen_;   // [rows, top]: experts
  std::vector<uint32_t> places_;   // [rows, top]: where in gathered_ and computed_
  std::vector<uint32_t> sources_;  // [rows * top]: the row that stands in gathered_
  std::vector<uint32_t> starts_;   // [experts + 1]: the first place of each
};

}  // namespace quire::backend::cpu
