#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/kv_blocks.h"
#include "kernels/attention.h"
#include "tests/device_on_host/support.h"

// Sequences for the tests of attention on the device, and what the CPU's reference makes of them.
namespace quire::test::fibers {

struct AttentionShape {
  DType dtype = DType::kBF16;
  uint32_t head_dim = 64;
  uint32_t kv_heads = 1;
  uint32_t group = 1;
  uint32_t window = 0;
  uint32_t block_size = 16;
  float soft_cap = 0.0F;

  uint32_t heads() const { return kv_heads * group; }
  size_t q_width() const { return size_t{heads()} * head_dim; }
  size_t kv_width() const { return size_t{kv_heads} * head_dim; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }
  backend::cuda::KvBlocks blocks() const { return {dtype, block_size, kv_heads, head_dim}; }
};

/// A sequence of `tokens`: K and V of all, and the queries of the last `computed`.
struct AttendedSequence {
  AttendedSequence(const AttentionShape& shape, uint32_t tokens, uint32_t computed, uint64_t seed)
      : length(tokens),
        rows(computed),
        q(stored_floats(seed, computed * shape.q_width(), shape.dtype, 2.0F)),
        k(stored_floats(seed + 1, tokens * shape.kv_width(), shape.dtype)),
        v(stored_floats(seed + 2, tokens * shape.kv_width(), shape.dtype)) {}
  uint32_t length;
  uint32_t rows;
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;

  /// The first key that a query sees.
  uint32_t first_key(uint32_t window) const {
    const uint32_t first_length = length - rows + 1;
    return window != 0 && first_length > window ? first_length - window : 0;
  }
};

/// What the CPU's reference makes of its queries.
inline std::vector<float> reference(const AttentionShape& shape, const AttendedSequence& sequence) {
  ThreadPool pool(1);
  kernels::KernelContext context{kernels::IsaLevel::kReference, pool};
  const kernels::KvLayout layout{shape.dtype, 16, shape.kv_heads, shape.head_dim};
  std::vector<BlockId> table((sequence.length + 15) / 16);
  std::iota(table.begin(), table.end(), 0);
  std::vector<std::byte> cache(table.size() * layout.block_bytes());
  const kernels::AttentionSeq all{0, sequence.length, 0, table};
  kernels::write_kv(context, layout, cache.data(), {&all, 1}, sequence.k.data(), shape.kv_width(),
                    sequence.v.data(), shape.kv_width());
  const kernels::AttentionSeq last{0, sequence.rows, sequence.length - sequence.rows, table};
  std::vector<float> out(sequence.q.size());
  kernels::paged_attention(context, layout, cache.data(), {&last, 1},
                           {shape.heads(), shape.scale(), shape.window, shape.soft_cap}, sequence.q.data(),
                           shape.q_width(), out.data(), shape.q_width());
  return out;
}

/// Large shapes, whose code differs from that of smaller ones in lengths alone, are run in fewer orders.
inline uint64_t orders_of(const AttentionShape& shape) {
  return shape.head_dim > 80 || shape.heads() > 7 ? std::max<uint64_t>(kOrders / 4, 2) : kOrders;
}

inline std::string shape_name(const AttentionShape& shape) {
  return std::string(dtype_name(shape.dtype)) + "_dim" + std::to_string(shape.head_dim) + "_kv" +
         std::to_string(shape.kv_heads) + "_group" + std::to_string(shape.group) + "_window" +
         std::to_string(shape.window) +
         (shape.soft_cap == 0.0F ? "" : "_cap" + std::to_string(std::lround(shape.soft_cap * 1000)));
}

/// f32 1e-5, f16 and bf16 0.01.
inline double attention_tolerance(DType dtype) { return dtype == DType::kF32 ? 1e-5 : 0.01; }

/// K and V of sequences on the device, each in blocks of its own, whose numbers `seed` draws. What no query
/// sees stays unwritten, so that a read of it is found; so do the tables' entries behind the window.
class PagedKv {
 public:
  PagedKv(Device& device, const AttentionShape& shape, std::span<const AttendedSequence* const> sequences,
          uint64_t seed)
      : shape_(shape),
        stride_(most_blocks(shape, sequences)),
        cache_(device, "cache", stride_ * sequences.size() * shape.blocks().block_elements(), shape.dtype),
        tables_(device.allocate("tables", stride_ * sequences.size() * sizeof(uint32_t))) {
    std::vector<uint32_t> free(stride_ * sequences.size());
    std::iota(free.begin(), free.end(), 0);
    SplitMix64 rng(seed);
    for (size_t i = free.size(); i > 1; --i) std::swap(free[i - 1], free[rng.below(i)]);
    for (size_t i = 0; i < sequences.size(); ++i) place(*sequences[i], i, free);
  }

  const void* cache() { return cache_.data(); }
  const Region& cache_region() const { return cache_.region(); }
  const uint32_t* tables() { return reinterpret_cast<const uint32_t*>(tables_.data()); }
  uint32_t stride() const { return stride_; }

 private:
  static uint32_t most_blocks(const AttentionShape& shape,
                              std::span<const AttendedSequence* const> sequences) {
    uint32_t most = 1;
    for (const AttendedSequence* sequence : sequences) {
      most = std::max(most, (sequence->length + shape.block_size - 1) / shape.block_size);
    }
    return most;
  }

  void place(const AttendedSequence& sequence, size_t number, std::vector<uint32_t>& free) {
    const backend::cuda::KvBlocks blocks = shape_.blocks();
    const uint32_t from = sequence.first_key(shape_.window);
    for (uint32_t entry = from / shape_.block_size; entry * shape_.block_size < sequence.length; ++entry) {
      const uint32_t block = free.back();
      free.pop_back();
      tables_.write((number * stride_ + entry) * sizeof(block), &block, sizeof(block));
      const uint32_t first = entry * shape_.block_size;
      for (uint32_t token = std::max(first, from);
           token < std::min(first + shape_.block_size, sequence.length); ++token) {
        for (uint32_t i = 0; i < shape_.kv_width(); ++i) {
          const size_t at = block * blocks.block_elements() + blocks.k_of_head(i / shape_.head_dim) +
                            size_t{token - first} * shape_.head_dim + i % shape_.head_dim;
          cache_.put(at, sequence.k[token * shape_.kv_width() + i]);
          cache_.put(at + blocks.v_after_k(), sequence.v[token * shape_.kv_width() + i]);
        }
      }
    }
  }

  AttentionShape shape_;
  uint32_t stride_;
  Elements cache_;
  Region& tables_;
};

inline std::vector<const AttendedSequence*> pointers(const std::vector<AttendedSequence>& sequences) {
  std::vector<const AttendedSequence*> all;
  for (const AttendedSequence& sequence : sequences) all.push_back(&sequence);
  return all;
}

}  // namespace quire::test::fibers
