#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace quire::backend::cuda {

/// The memory layout of one layer's K/V on the device. A block holds `block_size` tokens for all K/V heads
/// and is contiguous, so that it can be copied without knowing its contents: K [kv_head][token][head_dim],
/// then V likewise. (The CPU's layout differs: there lanes are keys.)
struct KvBlocks {
  DType dtype = DType::kBF16;  // f32, f16 or bf16
  uint32_t block_size = 16;    // 16 or 32
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;

  constexpr size_t block_elements() const { return size_t{2} * block_size * num_kv_heads * head_dim; }
  constexpr size_t block_bytes() const { return block_elements() * dtype_bytes(dtype); }
  /// Where the K of a block's first token begins for a K/V head, in elements from the block's beginning, and
  /// how far behind it the V does. Tokens are head_dim apart.
  constexpr size_t k_of_head(uint32_t kv_head) const { return size_t{kv_head} * block_size * head_dim; }
  constexpr size_t v_after_k() const { return size_t{num_kv_heads} * block_size * head_dim; }
};

}  // namespace quire::backend::cuda
