#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kv_blocks.h"
#include "backend/cuda/stream.h"

namespace quire::backend::cuda {

/// Tiles of one size are computed by one kernel. A large tile reads its keys once for twice as many queries;
/// a small one leaves room for more blocks of threads, and its spans can be shared.
enum class TileSize : uint8_t { kSmall, kLarge };

/// Consecutive tokens of one sequence whose queries one block of threads takes together.
struct QueryTile {
  uint32_t sequence;        // row of the block tables
  uint32_t first_row;       // of q and out
  uint32_t num_tokens;      // 1 to tokens_of_tile() of its size
  uint32_t first_position;  // of the first of them in the sequence
};

/// Causal attention of a batch's queries over K/V in blocks that are written already, on tensor cores:
/// prompts, chunks of them, decodes, and mixtures. Spans of 1,024 keys at fixed absolute positions, in each
/// of which online softmax over tiles of 32 keys (Milakov and Gimelshein 2018; Dao et al. 2022), are merged
/// one by one in ascending order, whether one block of threads goes through them or each has its own (Dao et
/// al. 2023, "Flash-Decoding"). So a row's bits depend on its own sequence alone, not on the batch, the
/// chunks, the tiles, how spans are shared, the block size or the block numbers. (They are not those of
/// decode_attention, which has no tensor cores: an engine uses the one or the other for all its rows.)
/// Weights are rounded to the type of V before they are multiplied with it; sums are f32.
struct PagedAttentionArgs {
  KvBlocks blocks;  // of f16 or bf16; q and out are of its dtype
  const void* cache;
  const void* q;  // [rows, num_heads * head_dim], rows q_stride elements apart, all at multiples of 16 bytes
  uint32_t q_stride;             // as in the rows of a fused projection
  void* out;                     // [rows, num_heads * head_dim]
  uint32_t num_rows;             // of q and out
  uint32_t num_heads;            // a multiple of num_kv_heads: 1 to 16 times as many
  const uint32_t* block_tables;  // [sequences, table_stride]: block numbers, by position / block size
  uint32_t table_stride;         // entries; those that a tile's window begins behind are not read
  const QueryTile* tiles;        // [num_tiles], on the device, large ones first; no row is in two
  uint32_t num_tiles;            // at most 65,535
  uint32_t num_large_tiles;      // of them
  uint32_t shared_spans;  // 0: a block goes through all spans. Otherwise each span of a small tile has its
                          // own block, and this is the most that such a tile has: tile_spans()
  uint32_t most_shared_tokens;  // of a small tile, if spans are shared
  float* partials;  // paged_attention_scratch() floats, at a multiple of 16 bytes; null for 0 shared spans
  float scale;      // positive factor of q.k, usually 1/sqrt(head_dim)
  uint32_t window;  // a query at p reads keys in (p - window, p]; 0: all keys up to p
  float soft_cap;   // scores (scale * q.k) become soft_cap * tanh(score / soft_cap); 0: unchanged
};

/// Whether the kernels exist for this layout and number of query heads.
bool supports_paged_attention(const KvBlocks& blocks, uint32_t num_heads);
/// The most tokens of a tile.
uint32_t tokens_of_tile(const KvBlocks& blocks, uint32_t num_heads, TileSize size);
/// The spans that a tile sees.
uint32_t tile_spans(const QueryTile& tile, uint32_t window);
/// The floats of PagedAttentionArgs::partials.
size_t paged_attention_scratch(const PagedAttentionArgs& args);

/// REQUIRES: supports_paged_attention(args.blocks, args.num_heads).
[[nodiscard]] LaunchError paged_attention(const PagedAttentionArgs& args, Stream stream);

}  // namespace quire::backend::cuda
