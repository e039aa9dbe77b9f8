#include "backend/cuda/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/ptx.h"
#include "tests/device_on_host/attention_support.h"

namespace quire::test::fibers {
namespace {

using backend::cuda::PagedAttentionArgs;
using backend::cuda::QueryTile;
using backend::cuda::tile_spans;
using backend::cuda::TileSize;

using Shape = AttentionShape;
using Sequence = AttendedSequence;

/// How a batch is computed; nothing of it may show in the results.
struct Manner {
  uint32_t tile_tokens = 128;  // or as many as a tile has
  bool shares_spans = false;   // of small tiles
};

class RowBatch {
 public:
  RowBatch(Device& device, const Shape& shape, std::span<const Sequence* const> sequences, uint64_t seed,
           const Manner& manner)
      : shape_(shape), kv_(device, shape, sequences, seed) {
    std::vector<float> q;
    std::vector<QueryTile> tiles;
    const uint32_t small = tokens_of_tile(shape.blocks(), shape.heads(), TileSize::kSmall);
    const uint32_t large = tokens_of_tile(shape.blocks(), shape.heads(), TileSize::kLarge);
    const uint32_t most = std::min(manner.tile_tokens, large);
    for (uint32_t i = 0; i < sequences.size(); ++i) {
      const Sequence& sequence = *sequences[i];
      const auto first_row = static_cast<uint32_t>(q.size() / shape.q_width());
      first_rows_.push_back(first_row);
      q.insert(q.end(), sequence.q.begin(), sequence.q.end());
      for (uint32_t row = 0; row < sequence.rows; row += most) {
        const QueryTile tile{i, first_row + row, std::min(most, sequence.rows - row),
                             sequence.length - sequence.rows + row};
        const bool is_large = tile.num_tokens > small;
        if (manner.shares_spans && !is_large) {
          spans_ = std::max(spans_, tile_spans(tile, shape.window));
          most_shared_tokens_ = std::max(most_shared_tokens_, tile.num_tokens);
        }
        tiles.insert(is_large ? tiles.begin() : tiles.end(), tile);
        num_large_tiles_ += is_large ? 1 : 0;
      }
    }
    first_rows_.push_back(static_cast<uint32_t>(q.size() / shape.q_width()));
    q_ = std::make_unique<Elements>(device, "q", q, shape.dtype);
    out_ = std::make_unique<Elements>(device, "out", q.size(), shape.dtype);
    tiles_ = std::make_unique<DeviceArray<QueryTile>>(device, "tiles", tiles);
    partials_ = &device.allocate("partials", paged_attention_scratch(args()) * sizeof(float));
  }

  void run() { ASSERT_EQ(backend::cuda::paged_attention(args(), nullptr), 0); }
  const Region& cache() const { return kv_.cache_region(); }
  std::vector<float> rows(size_t sequence) const {
    std::vector<float> values;
    for (size_t i = first_rows_[sequence] * shape_.q_width();
         i < first_rows_[sequence + 1] * shape_.q_width(); ++i) {
      values.push_back(out_->at(i));
    }
    return values;
  }

 private:
  PagedAttentionArgs args() {
    return {.blocks = shape_.blocks(),
            .cache = kv_.cache(),
            .q = q_->data(),
            .q_stride = static_cast<uint32_t>(shape_.q_width()),
            .out = out_->data(),
            .num_rows = first_rows_.back(),
            .num_heads = shape_.heads(),
            .block_tables = kv_.tables(),
            .table_stride = kv_.stride(),
            .tiles = tiles_->data(),
            .num_tiles = static_cast<uint32_t>(tiles_->values().size()),
            .num_large_tiles = num_large_tiles_,
            .shared_spans = spans_,
            .most_shared_tokens = most_shared_tokens_,
            .partials = partials_ == nullptr ? nullptr : reinterpret_cast<float*>(partials_->data()),
            .scale = shape_.scale(),
            .window = shape_.window,
            .soft_cap = shape_.soft_cap};
  }

  Shape shape_;
  uint32_t spans_ = 0;
  uint32_t most_shared_tokens_ = 0;
  uint32_t num_large_tiles_ = 0;
  PagedKv kv_;
  std::vector<uint32_t> first_rows_;
  std::unique_ptr<Elements> q_;
  std::unique_ptr<Elements> out_;
  std::unique_ptr<DeviceArray<QueryTile>> tiles_;
  Region* partials_ = nullptr;
};

std::vector<std::vector<float>> run(Device& device, const Shape& shape,
                                    const std::vector<Sequence>& sequences, uint64_t seed,
                                    const Manner& manner) {
  RowBatch batch(device, shape, pointers(sequences), seed, manner);
  batch.run();
  std::vector<std::vector<float>> all;
  for (size_t i = 0; i < sequences.size(); ++i) all.push_back(batch.rows(i));
  return all;
}

void expect_near_reference(const Shape& shape, const std::vector<Sequence>& sequences,
                           const std::vector<std::vector<float>>& found) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<float> expected = reference(shape, sequences[i]);
    for (size_t j = 0; j < expected.size(); ++j) {
      ASSERT_NEAR(found[i][j], expected[j], attention_tolerance(shape.dtype))
          << "sequence " << i << " row " << j / shape.q_width() << " element " << j % shape.q_width();
    }
  }
}

class PagedAttention : public testing::TestWithParam<Shape> {};

TEST_P(PagedAttention, IsTheReferencesInEveryOrder) {
  const Shape& shape = GetParam();
  ASSERT_TRUE(backend::cuda::supports_paged_attention(shape.blocks(), shape.heads()));
  // A prompt, a chunk after a cached prefix, and a decode, which with a window cross from one span to the
  // next.
  const uint32_t prefix = shape.window == 0 ? 20 : 1015;
  const std::vector<Sequence> sequences = {
      {shape, 6, 6, 1}, {shape, prefix + 13, 8, 2}, {shape, prefix + 20, 1, 3}};
  std::vector<std::vector<float>> first;
  uint64_t seed = 0;
  in_many_orders(
      [&](Device& device) {
        const auto found = run(device, shape, sequences, ++seed, {.shares_spans = seed % 2 == 0});
        if (first.empty()) first = found;
        ASSERT_EQ(found, first);
      },
      orders_of(shape));
  expect_near_reference(shape, sequences, first);
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const uint32_t head_dim : {16U, 32U, 64U, 80U, 96U, 128U, 256U}) {
    const uint32_t block_size = head_dim % 64 == 0 ? 16 : 32;
    all.push_back({DType::kBF16, head_dim, 1, 3, 0, block_size});
    if (head_dim % 64 == 0) all.push_back({DType::kF16, head_dim, 1, 3, 0, block_size});
  }
  all.push_back({DType::kBF16, 64, 2, 1, 0, 16});
  all.push_back({DType::kBF16, 64, 1, 5, 0, 16});
  all.push_back({DType::kBF16, 64, 1, 16, 0, 32});
  for (const uint32_t window : {1U, 40U}) all.push_back({DType::kBF16, 64, 1, 4, window, 16});
  all.push_back({DType::kBF16, 256, 2, 1, 40, 32});
  for (const float cap : {3.0F, 0.3F}) {
    all.push_back({DType::kBF16, 64, 2, 1, 0, 16, cap});
    all.push_back({DType::kF16, 64, 1, 16, 40, 16, cap});
    all.push_back({DType::kBF16, 256, 1, 4, 0, 16, cap});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, PagedAttention, testing::ValuesIn(shapes()),
                         [](const testing::TestParamInfo<Shape>& tested) {
                           return shape_name(tested.param);
                         });

/// The first `length` tokens, of which the last `rows` are computed; `all` computes them too.
Sequence chunk_of(const Shape& shape, const Sequence& all, uint32_t length, uint32_t rows) {
  Sequence chunk = all;
  chunk.length = length;
  chunk.rows = rows;
  const auto first = static_cast<ptrdiff_t>((length - rows - (all.length - all.rows)) * shape.q_width());
  chunk.q.assign(all.q.begin() + first,
                 all.q.begin() + first + static_cast<ptrdiff_t>(rows * shape.q_width()));
  return chunk;
}

TEST(PagedAttentionRows, BitsDoNotDependOnTheMannerTheyAreComputedIn) {
  for (const auto& [window, cap] : {std::pair{1030U, 0.0F}, {1030U, 0.5F}, {40U, 0.0F}, {40U, 0.5F}}) {
    const Shape shape{DType::kBF16, 64, 1, 2, window, 16, cap};
    const Sequence all(shape, 1060, window == 40 ? 40 : 6, 5);
    std::vector<std::vector<float>> expected;
    {
      Device device(1);
      expected = run(device, shape, {all}, 1, {});
      ASSERT_TRUE(device.findings().empty()) << device.report();
    }
    expect_near_reference(shape, {all}, expected);
    Shape other = shape;
    other.block_size = 32;
    // In chunks side by side: one of a token, and two that cut the tiles elsewhere; beside another sequence.
    const uint32_t begin = all.length - all.rows;
    const uint32_t cut = begin + all.rows / 2;
    const std::vector<Sequence> chunks = {chunk_of(shape, all, begin + 1, 1),
                                          chunk_of(shape, all, cut, cut - begin - 1),
                                          {shape, 7, 7, 8},
                                          chunk_of(shape, all, all.length, all.length - cut)};
    for (const Manner& manner : {Manner{}, Manner{5, false}, Manner{64, true}, Manner{3, true}}) {
      Device device(manner.tile_tokens);
      const auto found = run(device, other, chunks, 7, manner);
      ASSERT_TRUE(device.findings().empty()) << device.report();
      std::vector<float> joined = found[0];
      joined.insert(joined.end(), found[1].begin(), found[1].end());
      joined.insert(joined.end(), found[3].begin(), found[3].end());
      EXPECT_EQ(joined, expected[0]) << "window " << window << " cap " << cap << " tiles of "
                                     << manner.tile_tokens;
    }
  }
}

class TilesOfBothSizes : public testing::TestWithParam<uint32_t> {};

TEST_P(TilesOfBothSizes, GiveTheSameBitsWhereverAChunkIsCut) {
  // Rows whose windows begin in one span and end in it or in the next: two large tiles and a small one.
  const Shape shape{DType::kBF16, GetParam(), 1, 4, 90, 16};
  const Sequence all(shape, 1060, 72, 9);
  std::vector<std::vector<float>> expected;
  for (const uint32_t first : {0U, 1U, 17U, 40U, 71U}) {
    std::vector<Sequence> chunks;
    const uint32_t cut = all.length - all.rows + first;
    if (first != 0) chunks.push_back(chunk_of(shape, all, cut, first));
    chunks.push_back(chunk_of(shape, all, all.length, all.rows - first));
    for (const Manner& manner : {Manner{}, Manner{128, true}, Manner{16}, Manner{16, true}}) {
      Device device(first + manner.tile_tokens);
      const auto found = run(device, shape, chunks, first, manner);
      ASSERT_TRUE(device.findings().empty()) << device.report();
      std::vector<float> joined = found[0];
      if (first != 0) joined.insert(joined.end(), found[1].begin(), found[1].end());
      if (expected.empty()) expected.push_back(joined);
      ASSERT_EQ(joined, expected[0]) << "cut at " << first << ", tiles of " << manner.tile_tokens;
    }
  }
  expect_near_reference(shape, {all}, expected);
}

INSTANTIATE_TEST_SUITE_P(Dims, TilesOfBothSizes, testing::Values(16, 64, 80, 128, 256),
                         testing::PrintToStringParamName());

TEST(PagedAttentionRows, ScoresFarAboveTheirCapBecomeIt) {
  for (const uint32_t head_dim : {64U, 256U}) {
    const Shape shape{DType::kBF16, head_dim, 1, 2, 0, 16, 3.0F};
    std::vector<Sequence> sequences = {{shape, 70, 20, 1}, {shape, 50, 1, 2}};
    for (Sequence& sequence : sequences) {
      for (float& value : sequence.q) value *= 256.0F;
    }
    Device device(1);
    const auto found = run(device, shape, sequences, 1, {});
    ASSERT_TRUE(device.findings().empty()) << device.report();
    expect_near_reference(shape, sequences, found);
  }
}

#ifndef QUIRE_REAL_DEVICE
/// What a row sees of a span, as the kernel's contract computes it: scores of log2, sums of each lane's keys.
struct PlainState {
  explicit PlainState(uint32_t head_dim) : results(head_dim) {}
  float max = -std::numeric_limits<float>::infinity();
  float sums[4] = {};
  std::vector<float> results;
};

/// The row's tile of keys from `first` on; `scores` of those that it does not see are minus infinity.
void add_plain_tile(PlainState& state, const std::vector<float>& scores, float scale, const float* values,
                    size_t stride, DType dtype) {
  const float max = std::max(state.max, *std::max_element(scores.begin(), scores.end()) * scale);
  const float rescale = backend::cuda::ptx::exp2_approx(state.max - max);
  state.max = max;
  for (float& sum : state.sums) sum *= rescale;
  for (float& result : state.results) result *= rescale;
  for (size_t key = 0; key < scores.size(); ++key) {
    const float weight = backend::cuda::ptx::exp2_approx(std::fma(scores[key], scale, -max));
    state.sums[key % 8 / 2] += weight;
    if (weight == 0.0F) continue;
    for (size_t d = 0; d < state.results.size(); ++d) {
      state.results[d] += stored(weight, dtype) * values[key * stride + d];
    }
  }
}

void merge_plain(PlainState& all, const PlainState& span) {
  const float max = std::max(all.max, span.max);
  const float before = backend::cuda::ptx::exp2_approx(all.max - max);
  const float more = backend::cuda::ptx::exp2_approx(span.max - max);
  all.max = max;
  const float sum = (span.sums[0] + span.sums[1]) + (span.sums[2] + span.sums[3]);
  all.sums[0] = std::fma(sum, more, all.sums[0] * before);
  for (size_t d = 0; d < all.results.size(); ++d) {
    all.results[d] = std::fma(span.results[d], more, all.results[d] * before);
  }
}

float plain_cap(float score, const Shape& shape) {
  using namespace backend::cuda::ptx;
  if (shape.soft_cap == 0.0F) return score;
  const float cap = shape.soft_cap * reciprocal_approx(shape.scale());
  const float power = exp2_approx(score * (2.0F * std::numbers::log2e_v<float> * reciprocal_approx(cap)));
  return std::fma(-2.0F * cap, reciprocal_approx(power + 1.0F), cap);
}

/// The output of one head of a row, step by step in the order of the kernel's contract.
std::vector<float> plain_head(const Shape& shape, const Sequence& sequence, uint32_t row, uint32_t head) {
  const uint32_t dim = shape.head_dim;
  const uint32_t length = sequence.length - sequence.rows + row + 1;
  const uint32_t begin = shape.window != 0 && length > shape.window ? length - shape.window : 0;
  const float* q = sequence.q.data() + row * shape.q_width() + size_t{head} * dim;
  const size_t first = size_t{head / shape.group} * dim;  // of a row of K or V
  PlainState all(dim);
  PlainState span(dim);
  for (uint32_t tile = begin / 32 * 32; tile < length; tile += 32) {
    std::vector<float> scores(std::min(32U, sequence.length - tile), -std::numeric_limits<float>::infinity());
    for (uint32_t key = std::max(tile, begin); key < std::min(tile + 32, length); ++key) {
      const float* k = sequence.k.data() + key * shape.kv_width() + first;
      scores[key - tile] = plain_cap(std::inner_product(q, q + dim, k, 0.0F), shape);
    }
    add_plain_tile(span, scores, shape.scale() * std::numbers::log2e_v<float>,
                   sequence.v.data() + tile * shape.kv_width() + first, shape.kv_width(), shape.dtype);
    if ((tile + 32) % 1024 != 0 && tile + 32 < length) continue;
    merge_plain(all, span);
    span = PlainState(dim);
  }
  for (float& result : all.results) result = stored(result / all.sums[0], shape.dtype);
  return all.results;
}

TEST(PagedAttentionRows, HaveTheBitsOfThePlainAlgorithm) {
  // From one span to the next, maxima that grow and others that do not, windows; large tiles and small ones.
  for (const Shape& shape :
       {Shape{DType::kBF16, 64, 1, 4, 0, 16}, Shape{DType::kBF16, 64, 2, 2, 1030, 32},
        Shape{DType::kF16, 128, 1, 4, 0, 16}, Shape{DType::kBF16, 16, 1, 4, 40, 16},
        Shape{DType::kBF16, 64, 1, 4, 90, 16, 0.5F}, Shape{DType::kBF16, 256, 1, 2, 90, 32, 0.5F}}) {
    const std::vector<Sequence> sequences = {{shape, 1100, 33, 1}, {shape, 1026, 1, 2}, {shape, 70, 70, 3}};
    // Of these devices, those of 128 and 4 tokens a tile have room for many stages.
    for (const Manner& manner : {Manner{}, Manner{7, true}, Manner{4, true}}) {
      Device device(manner.tile_tokens);
      const auto found = run(device, shape, sequences, 3, manner);
      ASSERT_TRUE(device.findings().empty()) << device.report();
      for (size_t i = 0; i < sequences.size(); ++i) {
        for (uint32_t row = 0; row < sequences[i].rows; ++row) {
          for (uint32_t head = 0; head < shape.heads(); ++head) {
            const auto at =
                found[i].begin() + static_cast<ptrdiff_t>(row * shape.q_width() + head * shape.head_dim);
            ASSERT_EQ(std::vector<float>(at, at + shape.head_dim), plain_head(shape, sequences[i], row, head))
                << shape_name(shape) << " sequence " << i << " row " << row << " head " << head;
          }
        }
      }
    }
  }
}

TEST(PagedAttentionRows, ATileOfKeysTakesOneBarrier) {
  for (const uint32_t head_dim : {128U, 256U}) {
    const Shape shape{DType::kBF16, head_dim, 1, 4, 0, 16};
    const auto barriers = [&](uint32_t keys, uint32_t rows) {
      Device device(keys);
      run(device, shape, {{shape, keys, rows, 1}}, 1, {});
      return device.barriers();
    };
    EXPECT_EQ(barriers(96, 1), barriers(64, 1) + 1);
    const uint32_t most = head_dim == 128 ? 32 : 16;  // of a large tile, or of the only size there is
    EXPECT_EQ(barriers(96, most), barriers(64, most) + 1);
  }
}

TEST(PagedAttentionRows, OfFewRowsTwoTilesOfKeysTakeThreeBarriers) {
  const Shape shape{DType::kBF16, 64, 1, 4, 0, 16};
  const auto barriers = [&](uint32_t keys, uint32_t rows) {
    Device device(1);
    run(device, shape, {{shape, keys, rows, 1}}, 1, {});
    return device.barriers();
  };
  for (const uint32_t rows : {1U, 4U}) {
    EXPECT_EQ(barriers(128, rows), barriers(64, rows) + 3);
    EXPECT_EQ(barriers(96, rows), barriers(128, rows));
  }
  EXPECT_EQ(barriers(128, 5), barriers(64, 5) + 2);
}

TEST(PagedAttentionRows, ReadsEachKeyAndValueOnceForATile) {
  for (const uint32_t head_dim : {64U, 128U}) {
    const Shape shape{DType::kBF16, head_dim, 2, 4, 0, 16};
    const std::vector<Sequence> prompt = {{shape, 70, 70, 3}};
    // Large tiles of 32 tokens and the rest; small ones of 16.
    for (const auto& [tokens, keys] : {std::pair{32U, 32U + 64U + 70U}, {16U, 16U + 32U + 48U + 64U + 70U}}) {
      Device device(head_dim);
      RowBatch batch(device, shape, pointers(prompt), 1, {.tile_tokens = tokens});
      batch.run();
      EXPECT_EQ(batch.cache().bytes_read(), keys * 2 * shape.kv_width() * sizeof(uint16_t)) << tokens;
    }
  }
}
#endif

}  // namespace
}  // namespace quire::test::fibers
