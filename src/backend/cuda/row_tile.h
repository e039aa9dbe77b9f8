#pragma once

#include <cstdint>

#include "backend/cuda/device.h"
#include "backend/cuda/route.h"

namespace quire::backend::cuda {

/// How the rows of y that a kernel computes are divided among its blocks.
enum class RowTiles : uint8_t {
  kConsecutive,  // a tile's rows one behind the other, all with one matrix
  kSingle,       // each row is a tile, and a choice of an expert
  kGrouped,      // tiles are those of group_by_expert()
};

/// What a block computes of a grid of so many columns of blocks for each tile. Blocks that run at the same
/// time have tiles of one band and few columns, so that what they read of a matrix comes from memory once for
/// the band. (With all columns of a tile at once, each tile of Mixtral's gate and up would read 235 MB
/// again.)
struct BlockPlace {
  uint32_t column;
  uint32_t tile;

  __device__ __forceinline__ explicit BlockPlace(uint32_t columns) {
    constexpr uint32_t kBand = 16;
    const uint32_t tiles = grid_x() / columns;
    const uint32_t first = block_x() / (kBand * columns) * kBand;
    const uint32_t in_band = tiles - first < kBand ? tiles - first : kBand;
    const uint32_t rest = block_x() - first * columns;
    tile = first + rest % in_band;
    column = rest / in_band;
  }
};

/// The rows of y that a block of threads computes together, and the matrix that they have in common.
struct RowTile {
  uint32_t expert = 0;  // 0 where there are none
  uint32_t count = 0;   // of rows; 0: there is nothing to do
  uint32_t first = 0;
  const uint32_t* order = nullptr;

  /// Tile `number`, which has at most `most` rows of `rows`.
  __device__ __forceinline__ RowTile(RowTiles how, uint32_t number, uint32_t most, uint32_t rows,
                                     const uint32_t* chosen, const uint32_t* all_in_order,
                                     const ExpertTile* tiles) {
    if (how == RowTiles::kGrouped) {
      const ExpertTile tile = tiles[number];
      expert = tile.expert;
      count = tile.count;
      order = all_in_order + tile.first;
    } else if (how == RowTiles::kSingle) {
      expert = chosen[number];
      count = 1;
      first = number;
    } else {
      first = number * most;
      count = rows - first < most ? rows - first : most;
    }
  }

  __device__ __forceinline__ uint32_t row(uint32_t i) const {
    return order == nullptr ? first + i : order[i];
  }
};

}  // namespace quire::backend::cuda
