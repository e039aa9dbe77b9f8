#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include "kernels/cpu/x86/vec.h"

namespace quire::kernels::cpu::amx {

/// What LDTILECFG reads: the rows of each tile register and their bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

/// GCC's intrinsics do not say that they read memory: what was written before must be there.
QUIRE_INLINE void finish_writes() { asm volatile("" ::: "memory"); }

}  // namespace quire::kernels::cpu::amx
