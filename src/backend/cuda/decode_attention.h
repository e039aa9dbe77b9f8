#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/attention_spans.h"
#include "backend/cuda/kv_blocks.h"
#include "backend/cuda/stream.h"

namespace quire::backend::cuda {

/// Attention of query tokens, one or several of each sequence, over K/V in blocks: of a prompt's chunk each
/// token is a query, whose keys end with its own. Keys are divided into spans of 1,024 at fixed absolute
/// positions; a first kernel makes one partial result of each span, a second combines them in ascending order
/// (Dao et al. 2023, "Flash-Decoding"). Within a span, online softmax over tiles of 32 keys, also at fixed
/// positions (Milakov and Gimelshein 2018; Dao et al. 2022). So a row's bits depend on its own sequence
/// alone, whatever the batch, the block size and the block numbers. K and V are read once for all query heads
/// of a K/V head.
struct DecodeAttentionArgs {
  KvBlocks blocks;  // q and out are of its dtype; sums are f32
  const void* cache;
  const void* q;                 // [num_queries, num_heads * head_dim], rows q_stride elements apart
  uint32_t q_stride;             // as in the rows of a fused projection
  void* out;                     // [num_queries, num_heads * head_dim]
  uint32_t num_queries;          // at most 65,535; so are the K/V heads
  uint32_t num_heads;            // a multiple of num_kv_heads: 1 to 16 times as many
  const uint32_t* block_tables;  // [sequences, table_stride]: block numbers, by position / block size
  uint32_t table_stride;         // entries; those that a query's window begins behind are not read
  const uint32_t* seqs;          // [num_queries]: the sequence of each
  const uint32_t* lengths;       // [num_queries]: keys, with that of the query's own token; at least 1
  uint32_t max_spans;            // at least attention_spans() of every query
  float* partials;               // decode_attention_scratch() floats, at a multiple of 16 bytes
  float scale;                   // factor of q.k, usually 1/sqrt(head_dim)
  uint32_t window;               // a query at p reads keys in (p - window, p]; 0: all keys up to p
  float soft_cap;  // scores (scale * q.k) become soft_cap * tanh(score / soft_cap); 0: unchanged
};

/// Whether the kernels exist for this layout and number of query heads.
bool supports_decode_attention(const KvBlocks& blocks, uint32_t num_heads);
/// The floats of DecodeAttentionArgs::partials.
size_t decode_attention_scratch(const DecodeAttentionArgs& args);

/// REQUIRES: supports_decode_attention(args.blocks, args.num_heads).
[[nodiscard]] LaunchError decode_attention(const DecodeAttentionArgs& args, Stream stream);

}  // namespace quire::backend::cuda
