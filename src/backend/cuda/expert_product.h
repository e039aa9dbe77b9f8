#pragma once

#include <cstdint>

#include "backend/cuda/route.h"
#include "backend/cuda/stream.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

/// y[c, i] = sum over j of x[c / x_choices, j] * weights[chosen[c], i, j] for each choice c, all on the
/// device, row-major, without gaps and at multiples of 16 bytes.
struct ExpertProductArgs {
  DType dtype;             // f32, f16 or bf16
  const void* x;           // [choices / x_choices, k]
  uint32_t x_choices;      // so many choices, one after the other, have one row of x
  const void* weights;     // [num_experts, n, k]
  void* y;                 // [choices, n]
  const uint32_t* chosen;  // [choices]: experts
  uint32_t choices;
  uint32_t num_experts;
  uint32_t n;  // a multiple of 16 bytes
  uint32_t k;  // likewise
  /// As group_by_expert() left them for tiles of tile_choices(). Not read where that is 1.
  const uint32_t* order;
  const ExpertTile* tiles;
};

/// The most choices that a block of threads multiplies together: where experts have few, and where they have
/// many.
inline constexpr uint32_t kSmallTile = 8;
inline constexpr uint32_t kLargeTile = 64;

/// How many choices of an expert are multiplied together: a small or a large tile, or 1 where choices seldom
/// share an expert. No result depends on it.
constexpr uint32_t tile_choices(uint32_t choices, uint32_t num_experts) {
  if (choices <= num_experts / 4) return 1;
  return choices <= num_experts * kSmallTile ? kSmallTile : kLargeTile;
}

/// Products with the experts' matrices, of which each choice has one. In f16 and bf16 a sum goes along k from
/// one 16 to the next, within them as the device's mma.m16n8k16 does; in f32 in an order that k alone
/// decides. So the bits of a choice depend on its row of x and its expert alone. No atomics, no split of k.
[[nodiscard]] LaunchError expert_product(const ExpertProductArgs& args, Stream stream);

}  // namespace quire::backend::cuda
