#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/weights.h"
#include "kernels/context.h"
#include "model/config.h"
#include "tensor/buffer.h"

namespace quire::backend::cpu {

/// The second half of a layer: one gated feed-forward, or a few experts that a router chooses for each row.
/// Keeps the memory of its activations between calls. Not thread-safe (uses the context's threads itself).
class FeedForwardPass {
 public:
  /// out [rows, hidden] = the layer's feed-forward of x [rows, hidden]; out and x must not overlap. A row of
  /// out depends on that row of x alone. Only experts that some row chose are computed.
  void run(kernels::KernelContext& context, const model::ModelConfig& config, const LayerWeights& layer,
           const float* x, size_t rows, float* out);
  /// Takes the memory of calls with up to so many rows of any of these layers, and has it found and cleared
  /// with the context's threads (without that of the context itself).
  void reserve(kernels::KernelContext& context, const model::ModelConfig& config,
               std::span<const LayerWeights> layers, size_t rows);
  /// The bytes of the context's scratch memory for such a call.
  static size_t scratch_bytes(const kernels::KernelContext& context, const LayerWeights& layer, size_t rows);

 private:
  void gated(kernels::KernelContext& context, const model::ModelConfig& config, const FeedForward& weights,
             const float* x, size_t rows, float* out);
  void sort_by_expert(size_t rows, const model::MoeConfig& moe);
  void experts(kernels::KernelContext& context, const model::ModelConfig& config, const LayerWeights& layer,
               const float* x, size_t rows, float* out);

  Buffer gate_up_;  // [rows computed together, 2 ffn]
  // For the experts. A row is in `chosen_` and `places_` once per expert that it chose.
  Buffer routed_;                  // [rows, experts]: the router's logits
  Buffer weights_;                 // [rows, top]
  Buffer gathered_;                // [rows * top, hidden]: rows by expert, in order of row
  Buffer computed_;                // [rows * top, hidden]
  std::vector<uint32_t> chosen_;   // [rows, top]: experts
  std::vector<uint32_t> places_;   // [rows, top]: where in gathered_ and computed_
  std::vector<uint32_t> sources_;  // [rows * top]: the row that is in gathered_
  std::vector<uint32_t> starts_;   // [experts + 1]: the first place of each expert
};

}  // namespace quire::backend::cpu
