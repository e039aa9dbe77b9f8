#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "kernels/context.h"
#include "tensor/dtype.h"

namespace quire::kernels {

/// The memory layout of one layer's K/V. A block holds `block_size` tokens for all K/V heads and is
/// contiguous, so that it can be copied without knowing its contents:
///   block: K then V.  K: [kv_head][tile][head_dim / step][16 tokens][step] (lanes are keys), V:
///   [kv_head][token / step][head_dim][step], where step is 2 for bf16, whose products come in pairs, and 1
///   for others, but 4 for K of int8, whose products come in fours.  Of int8 then the scales, f32: of K
///   [kv_head][token], of V [kv_head][token].
struct KvLayout {
  DType dtype = DType::kF32;  // f32, f16, bf16 or int8; int8 has a scale per token and head
  uint32_t block_size = 16;   // a multiple of 16
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;  // even; of int8 a multiple of 4

  static constexpr bool fits(DType dtype, uint32_t head_dim) {
    return head_dim % (dtype == DType::kI8 ? 4 : 2) == 0;
  }
  size_t scale_bytes() const { return dtype == DType::kI8 ? sizeof(float) : 0; }  // bytes per token and head
  size_t block_bytes() const {
    return size_t{2} * block_size * num_kv_heads * (head_dim * dtype_bytes(dtype) + scale_bytes());
  }
};

/// Consecutive tokens of one sequence inside a batch.
struct AttentionSeq {
  uint32_t first_row = 0;       // of q, k, v, out
  uint32_t num_rows = 0;        // tokens computed now
  uint32_t first_position = 0;  // of the first of them in the sequence
  std::span<const BlockId>
      block_table;  // by position / block size; only entries within a row's window are read
};

/// Writes k and v rows [rows, num_kv_heads * head_dim] (row strides ldk, ldv) into the sequences' blocks.
void write_kv(KernelContext& context, const KvLayout& layout, std::byte* cache,
              std::span<const AttentionSeq> seqs, const float* k, size_t ldk, const float* v, size_t ldv);

struct AttentionParams {
  uint32_t num_heads = 0;  // a multiple of num_kv_heads; head h uses K/V head h / (num_heads / num_kv_heads)
  float scale = 0.0F;      // factor of q.k, usually 1/sqrt(head_dim)
  uint32_t window = 0;     // a query at p reads keys in (p - window, p]; 0: all keys up to p
  float soft_cap = 0.0F;   // scores become soft_cap * tanh(score / soft_cap); 0: unchanged
};

/// Causal attention of q [rows, num_heads * head_dim] (stride ldq) over the K/V already written, into out
/// [rows, num_heads * head_dim] (stride ldo). Online softmax (Milakov and Gimelshein 2018; Dao et al. 2022)
/// over stretches of 64 keys at fixed absolute positions, in ascending order. Several threads share the spans
/// of 1,024 keys if there is no other work to share, and the spans are also combined in ascending order (Dao
/// et al. 2023, "Flash-Decoding"). A row's result does not depend on the batch, the chunking, the block size,
/// the threads or the block numbers. From kAvx512Bf16 on, with K/V in bf16, queries and the weights of values
/// are rounded to bf16. With K/V in int8, queries are rounded to int8 and the weights of values to 16 bits,
/// from kAvx512Bf16 on to bf16; kReference rounds nothing. All else is f32.
void paged_attention(KernelContext& context, const KvLayout& layout, const std::byte* cache,
                     std::span<const AttentionSeq> seqs, const AttentionParams& params, const float* q,
                     size_t ldq, float* out, size_t ldo);

}  // namespace quire::kernels
