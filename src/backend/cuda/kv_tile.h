#pragma once

#include <cstdint>

#include "backend/cuda/attention_spans.h"
#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/kv_blocks.h"

// What the kernels for attention have in common: how keys are divided, and how tiles of K and V come to
// shared memory. Their blocks have kThreads threads.
namespace quire::backend::cuda {

inline constexpr uint32_t kThreads = 128;
inline constexpr uint32_t kWarps = kThreads / kWarp;
inline constexpr uint32_t kTileKeys = 32;
inline constexpr uint32_t kMostGroup = 16;               // query heads of a K/V head
inline constexpr uint32_t kMostBlocks = kSpanKeys / 16;  // of a span
inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr float kMinusInfinity = -__builtin_inff();

/// Whether kernels for heads of this length can exist for the rest of a layout and the number of query heads.
constexpr bool supports_attention(const KvBlocks& blocks, uint32_t num_heads) {
  const bool has_size = blocks.block_size == 16 || blocks.block_size == 32;
  const uint32_t heads = blocks.num_kv_heads;
  return has_size && is_float(blocks.dtype) && heads > 0 && num_heads > 0 && num_heads % heads == 0 &&
         num_heads / heads <= kMostGroup;
}

/// Copies to shared memory the entries of a block table for the keys [begin, end) of a span; the first is
/// that of the span's first key.
__device__ __forceinline__ void load_table(uint32_t* to, const uint32_t* table, uint32_t block_size,
                                           uint32_t begin, uint32_t end) {
  for (uint32_t i = begin / block_size + thread_x(); i * block_size < end; i += kThreads) {
    to[i % (kSpanKeys / block_size)] = table[i];
  }
}

/// What one thread moves of a tile of K and V: from global memory to registers while the tile before is
/// computed, then on to shared memory. There a row is a piece longer than it needs, so that lanes that read a
/// piece of each row do not meet in a bank.
template <class T, uint32_t kDim>
struct KvTile {
  static constexpr uint32_t kRowPieces = kDim / kPiece<T>;
  static constexpr uint32_t kRow = kDim + kPiece<T>;
  static constexpr uint32_t kPieces = kTileKeys * kRowPieces;
  static constexpr uint32_t kLoads = (kPieces + kThreads - 1) / kThreads;
  ptx::Vec128 keys[kLoads];
  ptx::Vec128 values[kLoads];

  /// The keys [first, first + kTileKeys), of which those outside [begin, end) are zeros. `head`: the K/V
  /// head's K in block 0; `table`: from the span's first block on.
  __device__ __forceinline__ void load(const T* head, const KvBlocks& blocks, const uint32_t* table,
                                       uint32_t first, uint32_t begin, uint32_t end) {
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint32_t piece = i * kThreads + thread_x();
      const uint32_t key = first + piece / kRowPieces;
      keys[i] = values[i] = {};
      if (piece >= kPieces || key < begin || key >= end) continue;
      const uint32_t block = table[key % kSpanKeys / blocks.block_size];
      const T* from = head + block * blocks.block_elements() + key % blocks.block_size * kDim +
                      piece % kRowPieces * kPiece<T>;
      keys[i] = ptx::load_readonly_128(from);
      values[i] = ptx::load_readonly_128(from + blocks.v_after_k());
    }
  }

  __device__ __forceinline__ void store(T* to_keys, T* to_values) const {
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint32_t piece = i * kThreads + thread_x();
      if (piece >= kPieces) continue;
      const uint32_t at = piece / kRowPieces * kRow + piece % kRowPieces * kPiece<T>;
      ptx::store_shared_128(to_keys + at, keys[i]);
      ptx::store_shared_128(to_values + at, values[i]);
    }
  }
};

}  // namespace quire::backend::cuda
