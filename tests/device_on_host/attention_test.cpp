#include "kernels/attention.h"

#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/decode_attention.h"
#include "tests/device_on_host/support.h"

namespace quire::test::fibers {
namespace {

using backend::cuda::attention_spans;
using backend::cuda::DecodeAttentionArgs;
using backend::cuda::KvBlocks;

struct Shape {
  DType dtype = DType::kBF16;
  uint32_t head_dim = 64;
  uint32_t kv_heads = 1;
  uint32_t group = 1;
  uint32_t window = 0;
  uint32_t block_size = 16;

  uint32_t heads() const { return kv_heads * group; }
  size_t q_width() const { return size_t{heads()} * head_dim; }
  size_t kv_width() const { return size_t{kv_heads} * head_dim; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }
  KvBlocks blocks() const { return {dtype, block_size, kv_heads, head_dim}; }
};

/// A sequence of `length` tokens: the query of the last and K and V of all.
struct Sequence {
  Sequence(const Shape& shape, uint32_t tokens, uint64_t seed)
      : length(tokens),
        q(stored_floats(seed, shape.q_width(), shape.dtype, 2.0F)),
        k(stored_floats(seed + 1, tokens * shape.kv_width(), shape.dtype)),
        v(stored_floats(seed + 2, tokens * shape.kv_width(), shape.dtype)) {}
  uint32_t length;
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
};

/// What the CPU's reference makes of it.
std::vector<float> reference(const Shape& shape, const Sequence& sequence) {
  ThreadPool pool(1);
  kernels::KernelContext context{kernels::IsaLevel::kReference, pool};
  const kernels::KvLayout layout{shape.dtype, 16, shape.kv_heads, shape.head_dim};
  std::vector<BlockId> table((sequence.length + 15) / 16);
  std::iota(table.begin(), table.end(), 0);
  std::vector<std::byte> cache(table.size() * layout.block_bytes());
  const kernels::AttentionSeq all{0, sequence.length, 0, table};
  kernels::write_kv(context, layout, cache.data(), {&all, 1}, sequence.k.data(), shape.kv_width(),
                    sequence.v.data(), shape.kv_width());
  const kernels::AttentionSeq last{0, 1, sequence.length - 1, table};
  std::vector<float> out(shape.q_width());
  kernels::paged_attention(context, layout, cache.data(), {&last, 1},
                           {shape.heads(), shape.scale(), shape.window}, sequence.q.data(), shape.q_width(),
                           out.data(), shape.q_width());
  return out;
}

/// A batch on the device: each sequence in blocks of its own, whose numbers `seed` draws. What no token was
/// written to stays unwritten, so that a read of it is found; so do the tables' entries behind the window.
class Batch {
 public:
  Batch(Device& device, const Shape& shape, std::span<const Sequence* const> sequences, uint64_t seed,
        uint32_t more_spans = 0)
      : shape_(shape), count_(static_cast<uint32_t>(sequences.size())) {
    std::vector<float> q;
    std::vector<uint32_t> lengths;
    uint32_t blocks = 0;
    for (const Sequence* sequence : sequences) {
      q.insert(q.end(), sequence->q.begin(), sequence->q.end());
      lengths.push_back(sequence->length);
      const uint32_t own = (sequence->length + shape.block_size - 1) / shape.block_size;
      stride_ = std::max(stride_, own);
      blocks += own;
      spans_ = std::max(spans_, attention_spans(sequence->length, shape.window) + more_spans);
    }
    std::vector<uint32_t> free(blocks);
    std::iota(free.begin(), free.end(), 0);
    SplitMix64 rng(seed);
    for (size_t i = blocks; i > 1; --i) std::swap(free[i - 1], free[rng.below(i)]);
    q_ = &own(device, "q", q.size());
    q_->fill(q);
    lengths_ = &device.allocate("lengths", lengths.size() * sizeof(uint32_t));
    lengths_->write(0, lengths.data(), lengths.size() * sizeof(uint32_t));
    std::vector<uint32_t> seqs(count_);
    std::iota(seqs.begin(), seqs.end(), 0);
    seqs_ = &device.allocate("seqs", seqs.size() * sizeof(uint32_t));
    seqs_->write(0, seqs.data(), seqs.size() * sizeof(uint32_t));
    tables_ = &device.allocate("tables", size_t{stride_} * count_ * sizeof(uint32_t));
    cache_ = &own(device, "cache", blocks * shape.blocks().block_elements());
    out_ = &own(device, "out", q.size());
    for (uint32_t i = 0; i < count_; ++i) place(*sequences[i], i, free);
    partials_ = &device.allocate("partials", decode_attention_scratch(args()) * sizeof(float));
  }

  void run() { ASSERT_EQ(backend::cuda::decode_attention(args(), nullptr), 0); }
  std::vector<float> row(size_t i) const {
    std::vector<float> values(shape_.q_width());
    for (size_t j = 0; j < values.size(); ++j) values[j] = out_->at(i * values.size() + j);
    return values;
  }
  const Region& cache() const { return cache_->region(); }

 private:
  DecodeAttentionArgs args() const {
    return {.blocks = shape_.blocks(),
            .cache = cache_->data(),
            .q = q_->data(),
            .q_stride = static_cast<uint32_t>(shape_.q_width()),
            .out = out_->data(),
            .num_queries = count_,
            .num_heads = shape_.heads(),
            .block_tables = reinterpret_cast<const uint32_t*>(tables_->data()),
            .table_stride = stride_,
            .seqs = reinterpret_cast<const uint32_t*>(seqs_->data()),
            .lengths = reinterpret_cast<const uint32_t*>(lengths_->data()),
            .max_spans = spans_,
            .partials = partials_ == nullptr ? nullptr : reinterpret_cast<float*>(partials_->data()),
            .scale = shape_.scale(),
            .window = shape_.window};
  }

  Elements& own(Device& device, const char* name, size_t count) {
    return *arrays_.emplace_back(std::make_unique<Elements>(device, name, count, shape_.dtype));
  }

  /// Writes the K and V that the last token sees, each to its block.
  void place(const Sequence& sequence, uint32_t number, std::vector<uint32_t>& free) {
    const KvBlocks blocks = shape_.blocks();
    const uint32_t from =
        shape_.window != 0 && sequence.length > shape_.window ? sequence.length - shape_.window : 0;
    for (uint32_t entry = from / shape_.block_size; entry * shape_.block_size < sequence.length; ++entry) {
      const uint32_t block = free.back();
      free.pop_back();
      tables_->write((size_t{number} * stride_ + entry) * sizeof(block), &block, sizeof(block));
      const uint32_t first = entry * shape_.block_size;
      for (uint32_t token = std::max(first, from);
           token < std::min(first + shape_.block_size, sequence.length); ++token) {
        for (uint32_t i = 0; i < shape_.kv_width(); ++i) {
          const size_t at = block * blocks.block_elements() + blocks.k_of_head(i / shape_.head_dim) +
                            size_t{token - first} * shape_.head_dim + i % shape_.head_dim;
          cache_->put(at, sequence.k[token * shape_.kv_width() + i]);
          cache_->put(at + blocks.v_after_k(), sequence.v[token * shape_.kv_width() + i]);
        }
      }
    }
  }

  Shape shape_;
  uint32_t count_;
  uint32_t stride_ = 1;
  uint32_t spans_ = 1;
  std::vector<std::unique_ptr<Elements>> arrays_;
  Elements* q_ = nullptr;
  Elements* cache_ = nullptr;
  Elements* out_ = nullptr;
  Region* seqs_ = nullptr;
  Region* tables_ = nullptr;
  Region* lengths_ = nullptr;
  Region* partials_ = nullptr;
};

std::vector<Sequence> sequences_of(const Shape& shape, std::initializer_list<uint32_t> lengths) {
  std::vector<Sequence> all;
  for (const uint32_t length : lengths) all.emplace_back(shape, length, length * 7 + shape.head_dim);
  return all;
}

std::vector<const Sequence*> pointers(const std::vector<Sequence>& sequences) {
  std::vector<const Sequence*> all;
  for (const Sequence& sequence : sequences) all.push_back(&sequence);
  return all;
}

/// Issue's bounds for attention: f32 1e-5, f16 and bf16 0.01.
void expect_rows(const Shape& shape, const std::vector<Sequence>& sequences, const Batch& batch) {
  const double bound = shape.dtype == DType::kF32 ? 1e-5 : 0.01;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<float> expected = reference(shape, sequences[i]);
    const std::vector<float> found = batch.row(i);
    for (size_t j = 0; j < expected.size(); ++j) {
      ASSERT_NEAR(found[j], expected[j], bound) << "length " << sequences[i].length << " element " << j;
    }
  }
}

class DecodeAttention : public testing::TestWithParam<Shape> {};

TEST_P(DecodeAttention, IsTheReferencesInEveryOrder) {
  const Shape& shape = GetParam();
  ASSERT_TRUE(backend::cuda::supports_decode_attention(shape.blocks(), shape.heads()));
  // With a window, the longest begins in one span and ends in the next.
  const std::vector<Sequence> sequences =
      shape.window != 0 ? sequences_of(shape, {1, 23, 1040}) : sequences_of(shape, {1, 32, 50});
  std::vector<std::vector<float>> first;
  in_many_orders([&](Device& device) {
    Batch batch(device, shape, pointers(sequences), first.size());
    batch.run();
    if (first.empty()) {
      ASSERT_NO_FATAL_FAILURE(expect_rows(shape, sequences, batch));
      for (size_t i = 0; i < sequences.size(); ++i) first.push_back(batch.row(i));
    }
    for (size_t i = 0; i < sequences.size(); ++i) ASSERT_EQ(batch.row(i), first[i]);
  });
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const uint32_t head_dim : {8U, 16U, 32U, 64U, 80U, 96U, 128U}) {
      const uint32_t block_size = head_dim % 64 == 0 ? 16 : 32;
      all.push_back({dtype, head_dim, 1, 3, 0, block_size});
    }
  }
  for (const uint32_t group : {1U, 2U, 5U}) all.push_back({DType::kBF16, 64, 3, group, 0, 16});
  for (const uint32_t group : {7U, 16U}) all.push_back({DType::kBF16, 64, 1, group, 0, 16});
  for (const uint32_t window : {1U, 16U, 40U}) all.push_back({DType::kBF16, 64, 1, 4, window, 16});
  all.push_back({DType::kF32, 80, 1, 2, 33, 32});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, DecodeAttention, testing::ValuesIn(shapes()),
                         [](const testing::TestParamInfo<Shape>& tested) {
                           const Shape& shape = tested.param;
                           return std::string(dtype_name(shape.dtype)) + "_dim" +
                                  std::to_string(shape.head_dim) + "_kv" + std::to_string(shape.kv_heads) +
                                  "_group" + std::to_string(shape.group) + "_window" +
                                  std::to_string(shape.window);
                         });

TEST(DecodeAttentionRows, ARowsBitsDoNotDependOnTheBatch) {
  for (const uint32_t window : {0U, 1030U}) {
    const Shape shape{DType::kBF16, 64, 1, 2, window, 16};
    const std::vector<Sequence> sequences = sequences_of(shape, {1100, 3, 1024, 70});
    const std::vector<const Sequence*> all = pointers(sequences);
    std::vector<std::vector<float>> together;
    {
      Device device(1);
      Batch batch(device, shape, all, 1);
      batch.run();
      ASSERT_TRUE(device.findings().empty()) << device.report();
      for (size_t i = 0; i < all.size(); ++i) together.push_back(batch.row(i));
      ASSERT_NO_FATAL_FAILURE(expect_rows(shape, sequences, batch));
    }
    for (size_t i = 0; i < all.size(); ++i) {
      // Alone, with larger blocks elsewhere, and beside scratch for spans that nobody has.
      Shape other = shape;
      other.block_size = 32;
      Device device(i + 2);
      Batch batch(device, other, std::span(all).subspan(i, 1), i + 2, static_cast<uint32_t>(i));
      batch.run();
      ASSERT_TRUE(device.findings().empty()) << device.report();
      EXPECT_EQ(batch.row(0), together[i]) << "sequence " << i << " window " << window;
    }
  }
}

TEST(DecodeAttentionRows, MostSpans) {
  for (const uint32_t window : {0U, 1U, 2U, 1023U, 1024U, 1025U, 1026U, 2050U}) {
    uint32_t most = 0;
    for (uint32_t length = 1; length < 6000; ++length) {
      most = std::max(most, attention_spans(length, window));
      ASSERT_GE(backend::cuda::most_attention_spans(length, window), most) << length << " in " << window;
    }
    EXPECT_EQ(backend::cuda::most_attention_spans(5999, window), most) << window;
  }
}

TEST(DecodeAttentionRows, ReadsEachKeyAndValueOnceForAllHeads) {
  for (const uint32_t group : {1U, 4U, 16U}) {
    const Shape shape{DType::kBF16, 128, 2, group, 0, 16};
    const std::vector<Sequence> sequences = sequences_of(shape, {45, 9});
    Device device(group);
    Batch batch(device, shape, pointers(sequences), group);
    batch.run();
    EXPECT_EQ(batch.cache().bytes_read(), (45 + 9) * 2 * shape.kv_width() * sizeof(uint16_t));
  }
}

}  // namespace
}  // namespace quire::test::fibers
