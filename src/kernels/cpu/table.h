#pragma once

#include <vector>

#include "kernels/context.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/pack_table.h"

namespace quire::kernels::cpu {

/// Per row: scaled q, output accumulator (both padded), the weights of a stretch, running maximum, running
/// sum, rescale; and what the spans before gave. Then K and V of a stretch in f32.
constexpr size_t attention_scratch_floats(size_t rows, size_t padded_dim) {
  return rows * (2 * padded_dim + kStretchKeys + 3 + partial_floats(padded_dim)) +
         2 * kStretchKeys * padded_dim;
}

/// Where a float type stands in the table's arrays.
size_t float_index(DType dtype);

const KernelTable& reference_table();
/// The table of a level that available_isa_levels() has.
const KernelTable& table(IsaLevel level);

/// Tables of what was compiled in and runs here; null otherwise.
const KernelTable* native_table(IsaLevel level);
/// The levels that have one, slowest first.
std::vector<IsaLevel> native_levels();

/// The same of packing.
const PackTable& reference_pack_table();
const PackTable& pack_table(IsaLevel level);
const PackTable* native_pack_table(IsaLevel level);

/// A grain for parallel_for over `count`: some pieces per thread, none smaller than `min_grain`.
size_t balanced_grain(const ThreadPool& pool, size_t count, size_t min_grain);
/// The same for rows of so many elements, on each of which little is done.
size_t row_grain(const ThreadPool& pool, size_t rows, size_t elements_per_row);

}  // namespace quire::kernels::cpu
