#pragma once

#include <vector>

#include "kernels/context.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/pack_table.h"

namespace quire::kernels::cpu {

/// Per row: scaled q, output accumulator (both padded), the weights of a stretch, running maximum, running
/// sum, rescale factor, and the results of earlier spans. Then K and V of a stretch, widened, and what tile
/// registers need: the weights of a tile, a tile of output, V of a stretch in bf16; or instead of the latter
/// two the factors of eight rows in f32 (AMX), which are less from 16 dimensions on.
constexpr size_t attention_scratch_floats(size_t rows, size_t padded_dim) {
  return attention_rows(rows) * (2 * padded_dim + kStretchKeys + 3 + partial_floats(padded_dim)) +
         2 * kStretchKeys * padded_dim + kTileRows * kStretchKeys / 2 +
         (kTileRows + kStretchKeys / 2) * padded_dim;
}

/// The index of a float type in the table's arrays.
size_t float_index(DType dtype);
/// The index of a type of K/V: a float type's, or 3 for int8.
size_t kv_index(DType dtype);

const KernelTable& reference_table();
/// The table of a level. REQUIRES: the level is in available_isa_levels().
const KernelTable& table(IsaLevel level);

/// The table of a level that was compiled in and runs here; null otherwise.
const KernelTable* native_table(IsaLevel level);
/// The levels that have a table, slowest first.
std::vector<IsaLevel> native_levels();

/// The same for packing.
const PackTable& reference_pack_table();
const PackTable& pack_table(IsaLevel level);
const PackTable* native_pack_table(IsaLevel level);

/// A grain for parallel_for over `count` that gives a few pieces per thread, none smaller than `min_grain`.
size_t balanced_grain(const ThreadPool& pool, size_t count, size_t min_grain);
/// The same for rows with `elements_per_row` elements and little work per element.
size_t row_grain(const ThreadPool& pool, size_t rows, size_t elements_per_row);

}  // namespace quire::kernels::cpu
