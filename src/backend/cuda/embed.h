#pragma once

#include <cstdint>

#include "backend/cuda/stream.h"
#include "base/ids.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

/// In EmbedArgs::tokens: the other bits are a place in EmbedArgs::late.
inline constexpr uint32_t kLateBit = 1U << 31;

/// out[r, :] = table[tokens[r], :]. Table and out of `dtype` (f32, f16, bf16), rows of `width` elements
/// without gaps, at multiples of 16 bytes; `width` is a multiple of 16 bytes. A late token that
/// is negative, as it could not be sampled, is read as 0. REQUIRES: every other token is in the table.
struct EmbedArgs {
  DType dtype;
  const void* table;
  const uint32_t* tokens;  // [rows]
  void* out;
  uint32_t rows;
  uint32_t width;
  const TokenId* late = nullptr;  // if some of the tokens have kLateBit
};
[[nodiscard]] LaunchError embed(const EmbedArgs& args, Stream stream);

}  // namespace quire::backend::cuda
