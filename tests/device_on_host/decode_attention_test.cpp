#include "backend/cuda/decode_attention.h"

#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/device_on_host/attention_support.h"

namespace quire::test::fibers {
namespace {

using backend::cuda::attention_spans;
using backend::cuda::DecodeAttentionArgs;

using Sequence = AttendedSequence;

class Batch {
 public:
  Batch(Device& device, const AttentionShape& shape, std::span<const Sequence* const> sequences,
        uint64_t seed, uint32_t more_spans = 0)
      : shape_(shape),
        count_(static_cast<uint32_t>(sequences.size())),
        kv_(device, shape, sequences, seed),
        q_(device, "q", count_ * shape.q_width(), shape.dtype),
        out_(device, "out", count_ * shape.q_width(), shape.dtype),
        seqs_(device.allocate("seqs", count_ * sizeof(uint32_t))),
        lengths_(device.allocate("lengths", count_ * sizeof(uint32_t))) {
    std::vector<float> q;
    for (uint32_t i = 0; i < count_; ++i) {
      q.insert(q.end(), sequences[i]->q.begin(), sequences[i]->q.end());
      seqs_.write(i * sizeof(uint32_t), &i, sizeof(uint32_t));
      lengths_.write(i * sizeof(uint32_t), &sequences[i]->length, sizeof(uint32_t));
      spans_ = std::max(spans_, attention_spans(sequences[i]->length, shape.window) + more_spans);
    }
    q_.fill(q);
    partials_ = &device.allocate("partials", decode_attention_scratch(args()) * sizeof(float));
  }

  void run() { ASSERT_EQ(backend::cuda::decode_attention(args(), nullptr), 0); }
  std::vector<float> row(size_t i) const {
    std::vector<float> values(shape_.q_width());
    for (size_t j = 0; j < values.size(); ++j) values[j] = out_.at(i * values.size() + j);
    return values;
  }
  const Region& cache() const { return kv_.cache_region(); }

 private:
  DecodeAttentionArgs args() {
    return {.blocks = shape_.blocks(),
            .cache = kv_.cache(),
            .q = q_.data(),
            .q_stride = static_cast<uint32_t>(shape_.q_width()),
            .out = out_.data(),
            .num_queries = count_,
            .num_heads = shape_.heads(),
            .block_tables = kv_.tables(),
            .table_stride = kv_.stride(),
            .seqs = reinterpret_cast<const uint32_t*>(seqs_.data()),
            .lengths = reinterpret_cast<const uint32_t*>(lengths_.data()),
            .max_spans = spans_,
            .partials = partials_ == nullptr ? nullptr : reinterpret_cast<float*>(partials_->data()),
            .scale = shape_.scale(),
            .window = shape_.window,
            .soft_cap = shape_.soft_cap};
  }

  AttentionShape shape_;
  uint32_t count_;
  uint32_t spans_ = 1;
  PagedKv kv_;
  Elements q_;
  Elements out_;
  Region& seqs_;
  Region& lengths_;
  Region* partials_ = nullptr;
};

std::vector<Sequence> sequences_of(const AttentionShape& shape, std::initializer_list<uint32_t> lengths) {
  std::vector<Sequence> all;
  for (const uint32_t length : lengths) all.emplace_back(shape, length, 1, length * 7 + shape.head_dim);
  return all;
}

void expect_rows(const AttentionShape& shape, const std::vector<Sequence>& sequences, const Batch& batch) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<float> expected = reference(shape, sequences[i]);
    const std::vector<float> found = batch.row(i);
    for (size_t j = 0; j < expected.size(); ++j) {
      ASSERT_NEAR(found[j], expected[j], attention_tolerance(shape.dtype))
          << "length " << sequences[i].length << " element " << j;
    }
  }
}

class DecodeAttention : public testing::TestWithParam<AttentionShape> {};

TEST_P(DecodeAttention, IsTheReferencesInEveryOrder) {
  const AttentionShape& shape = GetParam();
  ASSERT_TRUE(backend::cuda::supports_decode_attention(shape.blocks(), shape.heads()));
  // With a window, the longest begins in one span and ends in the next.
  const std::vector<Sequence> sequences =
      shape.window != 0 ? sequences_of(shape, {1, 23, 1040}) : sequences_of(shape, {1, 32, 50});
  std::vector<std::vector<float>> first;
  in_many_orders(
      [&](Device& device) {
        Batch batch(device, shape, pointers(sequences), first.size());
        batch.run();
        if (first.empty()) {
          ASSERT_NO_FATAL_FAILURE(expect_rows(shape, sequences, batch));
          for (size_t i = 0; i < sequences.size(); ++i) first.push_back(batch.row(i));
        }
        for (size_t i = 0; i < sequences.size(); ++i) ASSERT_EQ(batch.row(i), first[i]);
      },
      orders_of(shape));
}

std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> all;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const uint32_t head_dim : {16U, 32U, 64U, 80U, 96U, 128U, 256U}) {
      if (dtype == DType::kF16 && head_dim % 64 != 0) continue;
      const uint32_t block_size = head_dim % 64 == 0 ? 16 : 32;
      all.push_back({dtype, head_dim, 1, 3, 0, block_size});
    }
  }
  for (const uint32_t group : {1U, 5U}) all.push_back({DType::kBF16, 64, 3, group, 0, 16});
  for (const uint32_t group : {2U, 7U, 16U}) all.push_back({DType::kBF16, 64, 1, group, 0, 16});
  for (const uint32_t window : {1U, 16U, 40U}) all.push_back({DType::kBF16, 64, 1, 4, window, 16});
  all.push_back({DType::kF32, 80, 1, 2, 33, 32});
  for (const float cap : {3.0F, 0.3F}) {
    all.push_back({DType::kF32, 16, 1, 4, 0, 16, cap});
    all.push_back({DType::kBF16, 64, 2, 1, 40, 16, cap});
    all.push_back({DType::kF16, 256, 1, 5, 0, 16, cap});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, DecodeAttention, testing::ValuesIn(shapes()),
                         [](const testing::TestParamInfo<AttentionShape>& tested) {
                           return shape_name(tested.param);
                         });

TEST(DecodeAttentionRows, ARowsBitsDoNotDependOnTheBatch) {
  for (const uint32_t window : {0U, 1030U}) {
    const AttentionShape shape{DType::kBF16, 64, 1, 2, window, 16};
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
      AttentionShape other = shape;
      other.block_size = 32;
      Device device(i + 2);
      Batch batch(device, other, std::span(all).subspan(i, 1), i + 2, static_cast<uint32_t>(i));
      batch.run();
      ASSERT_TRUE(device.findings().empty()) << device.report();
      EXPECT_EQ(batch.row(0), together[i]) << "sequence " << i << " window " << window;
    }
  }
}

TEST(DecodeAttentionRows, ScoresFarAboveTheirCapBecomeIt) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const AttentionShape shape{dtype, 64, 1, 4, 0, 16, 3.0F};
    std::vector<Sequence> sequences = sequences_of(shape, {7, 50});
    for (Sequence& sequence : sequences) {
      for (float& value : sequence.q) value *= 256.0F;
    }
    Device device(1);
    Batch batch(device, shape, pointers(sequences), 1);
    batch.run();
    ASSERT_TRUE(device.findings().empty()) << device.report();
    ASSERT_NO_FATAL_FAILURE(expect_rows(shape, sequences, batch));
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

#ifndef QUIRE_REAL_DEVICE
TEST(DecodeAttentionRows, ATileOfKeysTakesTwoBarriers) {
  const AttentionShape shape{DType::kBF16, 64, 1, 4, 0, 16};
  const auto barriers = [&](uint32_t length) {
    const std::vector<Sequence> sequences = sequences_of(shape, {length});
    Device device(length);
    Batch(device, shape, pointers(sequences), 1).run();
    return device.barriers();
  };
  EXPECT_EQ(barriers(96), barriers(64) + 2);
}

TEST(DecodeAttentionRows, ReadsEachKeyAndValueOnceForAllHeads) {
  for (const uint32_t group : {1U, 4U, 16U}) {
    const AttentionShape shape{DType::kBF16, 128, 2, group, 0, 16};
    const std::vector<Sequence> sequences = sequences_of(shape, {45, 9});
    Device device(group);
    Batch batch(device, shape, pointers(sequences), group);
    batch.run();
    EXPECT_EQ(batch.cache().bytes_read(), (45 + 9) * 2 * shape.kv_width() * sizeof(uint16_t));
  }
}
#endif

}  // namespace
}  // namespace quire::test::fibers
