#pragma once

#include <cstdint>

#include "backend/cuda/stream.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

/// out[r, :] = table[tokens[r], :]. Table and out of `dtype` (f32, f16, bf16), rows of `width` elements
/// without gaps, at multiples of 16 bytes; `width` is a multiple of 16 bytes. REQUIRES: every token is in the
/// table.
struct EmbedArgs {
  DType dtype;
  const void* table;
  const uint32_t* tokens;  // [rows]
  void* out;
  uint32_t rows;
  uint32_t width;
};
[[nodiscard]] LaunchError embed(const EmbedArgs& args, Stream stream);

}  // namespace quire::backend::cuda
