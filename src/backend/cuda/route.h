#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/stream.h"
#include "tensor/dtype.h"

// Which experts rows go to, and what comes of their answers (Shazeer et al. 2017; Jiang et al. 2024,
// Mixtral). A *choice* is an expert that a row has chosen: choice r * top + j is the j-th of row r.
namespace quire::backend::cuda {

/// The rows of a router's matrix: as many as experts and, up to a multiple of 16, rows of zeros. Without them
/// few_rows() would not multiply by it, and cuBLASLt by one block of threads.
constexpr uint32_t router_rows(uint32_t num_experts) { return (num_experts + 15) / 16 * 16; }

/// For each row, the `top` experts of the largest logits, each once, largest first and the first among
/// equals; a logit that is no number is below all others. The weight of a choice is exp(logit) over the sum
/// of all exp(logit) of the row or, if `normalize`, over that of the row's choices. kernels::route
/// (kernels/moe.h) gives the same, but where probabilities are equal whose logits are not, or are no numbers.
struct RouteArgs {
  const float* logits;  // [rows, num_experts], rows `stride` apart
  uint32_t stride;
  uint32_t rows;
  uint32_t num_experts;  // at most kMostExperts
  uint32_t top;          // 1 to num_experts
  bool normalize;
  uint32_t* chosen;  // [choices]: experts
  float* weights;    // [choices]
};
inline constexpr uint32_t kMostExperts = 4096;
[[nodiscard]] LaunchError route(const RouteArgs& args, Stream stream);

/// Choices of one expert, which are computed together: order[first] to order[first + count - 1].
struct ExpertTile {
  uint32_t expert;
  uint32_t first;
  uint32_t count;  // 0: this tile is none
};

/// Puts the choices of each expert into tiles of at most `tile_choices`. Which ones share a tile follows from
/// `chosen` alone.
struct GroupArgs {
  const uint32_t* chosen;  // [choices]
  uint32_t choices;
  uint32_t num_experts;
  uint32_t tile_choices;
  uint32_t* order;    // [choices]: all of them, those of the first expert first
  ExpertTile* tiles;  // [expert_tiles(choices, num_experts, tile_choices)], some of them none
};
/// As many as there can be, with one that may be none for each expert. So an expert's tiles have places that
/// follow from the number of choices before them, and no block needs to know how many tiles others fill.
constexpr size_t expert_tiles(size_t choices, uint32_t num_experts, uint32_t tile_choices) {
  return choices / tile_choices + num_experts;
}
[[nodiscard]] LaunchError group_by_expert(const GroupArgs& args, Stream stream);

/// out[r, :] = sum over j ascending of weights[r * top + j] * y[r * top + j, :], in f32. Rows are `width`
/// elements of `dtype` without gaps, and multiples of 16 bytes.
struct CombineArgs {
  DType dtype;
  const void* y;         // [choices, width]
  const float* weights;  // [choices]
  void* out;             // [rows, width]
  uint32_t rows;
  uint32_t top;
  uint32_t width;
};
[[nodiscard]] LaunchError combine_choices(const CombineArgs& args, Stream stream);

}  // namespace quire::backend::cuda
