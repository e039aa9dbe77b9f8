#pragma once

#include <cstddef>

#include "kernels/cpu/pack_table.h"
#include "tensor/weight_format.h"

namespace quire::kernels {

/// Packs a panel of a ggml format (cpu::BlockLayout) from 32 rows of quantization blocks with k values; null:
/// a row of zeros. False if a scale is not finite.
bool pack_blocks(const cpu::PackTable& kernels, WeightFormat format, const std::byte* const* rows, size_t k,
                 std::byte* to);

}  // namespace quire::kernels
