#include "kernels/attention.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>
#include <utility>

#include "kernels/quantize.h"
#include "tests/kernels/support.h"

namespace quire::test {
namespace {

struct Shape {
  uint32_t head_dim = 64;
  uint32_t kv_heads = 2;
  uint32_t group = 4;
  uint32_t window = 0;
  DType dtype = DType::kF32;
  float soft_cap = 0.0F;

  uint32_t heads() const { return kv_heads * group; }
};

/// How one sequence is computed; nothing of it may show in the result.
struct Manner {
  uint32_t chunk = 1;
  uint32_t block_size = 16;
  bool permuted = false;
  uint32_t threads = 1;
};

/// `values`, rows of `head_dim`, as they come back from K/V of `dtype`.
std::vector<float> kept(const std::vector<float>& values, DType dtype, size_t head_dim) {
  std::vector<float> out(values.size());
  std::vector<int8_t> integers(head_dim);
  for (size_t at = 0; at < values.size(); at += head_dim) {
    float scale = 1.0F;
    if (dtype == DType::kI8) scale = kernels::quantize_int8(values.data() + at, integers.data(), head_dim);
    for (size_t d = 0; d < head_dim; ++d) {
      out[at + d] =
          dtype == DType::kI8 ? static_cast<float>(integers[d]) * scale : stored(values[at + d], dtype);
    }
  }
  return out;
}

/// q, k and v of all tokens of one sequence.
struct Sequence {
  Sequence(uint64_t seed, const Shape& shape, uint32_t num_tokens)
      : tokens(num_tokens),
        q(random_floats(seed, size_t{tokens} * shape.heads() * shape.head_dim, 2.0F)),
        k(random_floats(seed + 1, size_t{tokens} * shape.kv_heads * shape.head_dim, 2.0F)),
        v(random_floats(seed + 2, size_t{tokens} * shape.kv_heads * shape.head_dim)),
        kept_k(kept(k, shape.dtype, shape.head_dim)),
        kept_v(kept(v, shape.dtype, shape.head_dim)) {}
  uint32_t tokens;
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
  std::vector<float> kept_k;
  std::vector<float> kept_v;
};

/// The cache starts as NaN, so that reading what was never written shows.
class PagedRun {
 public:
  PagedRun(kernels::IsaLevel level, const Shape& shape, const Manner& manner,
           std::span<const Sequence> sequences)
      : shape_(shape),
        manner_(manner),
        layout_{shape.dtype, manner.block_size, shape.kv_heads, shape.head_dim},
        sequences_(sequences),
        pool_(manner.threads),
        context_{level, pool_} {
    size_t blocks = 0;
    for (const Sequence& sequence : sequences) blocks += (sequence.tokens - 1) / manner.block_size + 1;
    std::vector<BlockId> free(blocks);
    std::iota(free.begin(), free.end(), 0);
    SplitMix64 rng(blocks);
    for (size_t i = blocks; manner.permuted && i > 1; --i) std::swap(free[i - 1], free[rng.below(i)]);
    for (const Sequence& sequence : sequences) {
      const size_t count = (sequence.tokens - 1) / manner.block_size + 1;
      tables_.emplace_back(free.end() - static_cast<ptrdiff_t>(count), free.end());
      free.resize(free.size() - count);
      outputs_.emplace_back(sequence.q.size());
    }
    cache_.assign(blocks * layout_.block_bytes(), std::byte{0xff});
  }

  /// All sequences advance together, `chunk` tokens a step.
  std::vector<std::vector<float>> run() {
    uint32_t longest = 0;
    for (const Sequence& sequence : sequences_) longest = std::max(longest, sequence.tokens);
    for (uint32_t at = 0; at < longest; at += manner_.chunk) step(at);
    return outputs_;
  }

 private:
  void step(uint32_t at) {
    const size_t q_width = size_t{shape_.heads()} * shape_.head_dim;
    const size_t kv_width = size_t{shape_.kv_heads} * shape_.head_dim;
    const size_t ldq = q_width + 2 * kv_width;  // q, k, v side by side, as a fused projection gives them
    std::vector<float> rows;
    std::vector<kernels::AttentionSeq> batch;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const Sequence& sequence = sequences_[i];
      const uint32_t end = std::min(sequence.tokens, at + manner_.chunk);
      if (at >= end) continue;
      batch.push_back({static_cast<uint32_t>(rows.size() / ldq), end - at, at, tables_[i]});
      for (size_t token = at; token < end; ++token) {
        const auto append = [&](const std::vector<float>& from, size_t width) {
          rows.insert(rows.end(), from.data() + token * width, from.data() + (token + 1) * width);
        };
        append(sequence.q, q_width);
        append(sequence.k, kv_width);
        append(sequence.v, kv_width);
      }
    }
    const float* k = rows.data() + q_width;
    kernels::write_kv(context_, layout_, cache_.data(), batch, k, ldq, k + kv_width, ldq);
    const kernels::AttentionParams params{shape_.heads(),
                                          1.0F / std::sqrt(static_cast<float>(shape_.head_dim)),
                                          shape_.window, shape_.soft_cap};
    std::vector<float> out(rows.size() / ldq * q_width);
    kernels::paged_attention(context_, layout_, cache_.data(), batch, params, rows.data(), ldq, out.data(),
                             q_width);
    size_t next = 0;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (at >= sequences_[i].tokens) continue;
      const kernels::AttentionSeq& seq = batch[next++];
      std::copy_n(out.data() + seq.first_row * q_width, seq.num_rows * q_width,
                  outputs_[i].data() + at * q_width);
    }
  }

  Shape shape_;
  Manner manner_;
  kernels::KvLayout layout_;
  std::span<const Sequence> sequences_;
  ThreadPool pool_;
  kernels::KernelContext context_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<std::vector<float>> outputs_;
  std::vector<std::byte> cache_;
};

/// Queries are rounded to int8, if K and V are.
bool has_integer_queries(kernels::IsaLevel level, DType dtype) {
  return level != kernels::IsaLevel::kReference && dtype == DType::kI8;
}
/// Weights are rounded to bf16 at this level; and queries, if K and V are bf16.
bool rounds(kernels::IsaLevel level, DType dtype) {
  return level >= kernels::IsaLevel::kAvx512Bf16 && (dtype == DType::kBF16 || dtype == DType::kI8);
}
/// A query as it is multiplied, `scale` included.
std::vector<double> query_of(kernels::IsaLevel level, DType dtype, const float* q, uint32_t head_dim,
                             float scale) {
  std::vector<double> out(q, q + head_dim);
  if (has_integer_queries(level, dtype)) {
    constexpr float kMost = 127;
    float largest = 0.0F;
    for (uint32_t d = 0; d < head_dim; ++d) largest = std::max(largest, std::abs(q[d]));
    const float inverse = kMost / largest;
    const double unit = static_cast<double>(largest) / kMost * scale;
    for (uint32_t d = 0; d < head_dim; ++d) out[d] = std::nearbyint(q[d] * inverse) * unit;
    return out;
  }
  for (uint32_t d = 0; d < head_dim; ++d) {
    out[d] = rounds(level, dtype) ? stored(q[d] * scale, DType::kBF16) : q[d] * scale;
  }
  return out;
}

std::vector<double> naive_row(kernels::IsaLevel level, const Shape& shape, const Sequence& sequence,
                              uint32_t position, uint32_t head) {
  const uint32_t head_dim = shape.head_dim;
  const size_t kv_width = size_t{shape.kv_heads} * head_dim;
  const size_t kv_offset = size_t{head / shape.group} * head_dim;
  const float* q = sequence.q.data() + (size_t{position} * shape.heads() + head) * head_dim;
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  const std::vector<double> factors = query_of(level, shape.dtype, q, head_dim, scale);
  const uint32_t first = shape.window != 0 && position >= shape.window ? position - shape.window + 1 : 0;
  std::vector<double> scores;
  for (uint32_t key = first; key <= position; ++key) {
    double dot = 0.0;
    for (uint32_t d = 0; d < head_dim; ++d) {
      dot += factors[d] * sequence.kept_k[key * kv_width + kv_offset + d];
    }
    if (shape.soft_cap != 0.0F) dot = shape.soft_cap * std::tanh(dot / shape.soft_cap);
    scores.push_back(dot);
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  double total = 0.0;
  std::vector<double> out(head_dim);
  for (uint32_t key = first; key <= position; ++key) {
    const double weight = std::exp(scores[key - first] - top);
    total += weight;
    for (uint32_t d = 0; d < head_dim; ++d) {
      out[d] += weight * sequence.kept_v[key * kv_width + kv_offset + d];
    }
  }
  for (double& value : out) value /= total;
  return out;
}

/// K and V are taken as they are stored, so what is left is f32 arithmetic: scores of magnitude up to about
/// sqrt(head_dim) * 4 err by some 1e-6, and so do the weights, relatively; |v| <= 1. Weights that are rounded
/// to bf16 err by up to 2^-9 of each, and so does their sum; to i16, by 2^-16 of the largest in a stretch,
/// and those of 64 keys together seldom by more than 2^-13 of it.
void expect_close_to_double(kernels::IsaLevel level, const Shape& shape, const Sequence& sequence,
                            const std::vector<float>& out) {
  const double of_i16 = has_integer_queries(level, shape.dtype) ? 0x1p-13 : 5e-6;
  const double tolerance = rounds(level, shape.dtype) ? 0x1p-8 : of_i16;
  for (uint32_t position = 0; position < sequence.tokens; ++position) {
    for (uint32_t head = 0; head < shape.heads(); ++head) {
      const std::vector<double> expected = naive_row(level, shape, sequence, position, head);
      const float* found = out.data() + (size_t{position} * shape.heads() + head) * shape.head_dim;
      for (uint32_t d = 0; d < shape.head_dim; ++d) {
        ASSERT_NEAR(found[d], expected[d], tolerance)
            << dtype_name(shape.dtype) << " head_dim " << shape.head_dim << " position " << position
            << " head " << head << " d " << d;
      }
    }
  }
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const uint32_t head_dim : {4, 8, 12, 16, 20, 40, 52, 60, 64, 72, 80, 96, 112, 128, 256}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
      all.push_back({head_dim, 2, 2, 0, dtype});
    }
  }
  for (uint32_t group = 1; group <= 8; ++group) all.push_back({20, 1, group, 0, DType::kF32});
  all.push_back({16, 1, 40, 0, DType::kBF16});  // more query heads than a query tile has rows
  for (const uint32_t window : {1, 5, 16, 17, 40, 1000}) {
    all.push_back({32, 2, 3, window, DType::kF32});
    all.push_back({32, 1, 4, window, DType::kBF16});
    all.push_back({32, 2, 4, window, DType::kI8, window == 5 ? 1.5F : 0.0F});
    all.push_back({24, 2, 2, window, DType::kF32, 1.5F});
    all.push_back({40, 1, 3, window, DType::kBF16});
    all.push_back({20, 1, 2, window, DType::kI8});
  }
  for (const float soft_cap : {0.3F, 2.0F, 50.0F}) all.push_back({64, 2, 3, 0, DType::kF32, soft_cap});
  for (const DType dtype : {DType::kBF16, DType::kI8}) all.push_back({64, 1, 4, 0, dtype, 1.5F});
  return all;
}

class Attention : public testing::TestWithParam<kernels::IsaLevel> {};

TEST_P(Attention, IsNearTheExactResult) {
  for (const Shape& shape : shapes()) {
    const Sequence sequence(shape.head_dim, shape, 53);
    const std::span<const Sequence> one(&sequence, 1);
    expect_close_to_double(GetParam(), shape, sequence,
                           PagedRun(GetParam(), shape, {.chunk = 53}, one).run()[0]);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Attention, ARowDoesNotDependOnTheMannerItIsComputedIn) {
  for (const Shape& shape : shapes()) {
    const Sequence sequence(shape.head_dim + 1, shape, 101);
    const std::span<const Sequence> one(&sequence, 1);
    const std::vector<float> expected = PagedRun(GetParam(), shape, {}, one).run()[0];
    for (const Manner& manner :
         {Manner{7, 16, false, 1}, Manner{16, 16, true, 2}, Manner{101, 16, false, 2}, Manner{1, 32, true, 2},
          Manner{33, 64, true, 4}, Manner{101, 64, true, 1}, Manner{101, 48, false, 4}}) {
      const std::vector<float> found = PagedRun(GetParam(), shape, manner, one).run()[0];
      ASSERT_TRUE(same_bits(found.data(), expected.data(), found.size()))
          << dtype_name(shape.dtype) << " head_dim " << shape.head_dim << " group " << shape.group
          << " window " << shape.window << ", chunks of " << manner.chunk << ", blocks of "
          << manner.block_size << ", " << manner.threads << " threads";
    }
  }
}

/// VNNI has the attention of AVX2 or AVX-512, but for int8.
bool has_its_own_attention(kernels::IsaLevel level, DType dtype) {
  return (level != kernels::IsaLevel::kAvx2Vnni && level != kernels::IsaLevel::kAvx512Vnni) ||
         dtype == DType::kI8;
}

/// A level may take subnormals for zeros, but then in all manners: keys that are, and products of weights.
TEST_P(Attention, SubnormalsDoNotDependOnTheMannerEither) {
  struct Scale {
    float q, k, v;
  };
  for (const Scale& scale : {Scale{0x1p126F, 0x1p-126F, 1.0F}, Scale{0x1p-70F, 0x1p-56F, 0x1p-122F},
                             Scale{0x1p-126F, 0x1p120F, 1.0F}, Scale{1.0F, 1.0F, 0x1p-115F}}) {
    for (const Shape& shape : {Shape{64, 1, 4, 0, DType::kBF16}, Shape{72, 1, 3, 0, DType::kI8}}) {
      Sequence sequence(7, shape, 90);
      for (float& value : sequence.q) value *= scale.q;
      for (float& value : sequence.k) value *= scale.k;
      for (float& value : sequence.v) value *= scale.v;
      const std::span<const Sequence> one(&sequence, 1);
      const std::vector<float> expected = PagedRun(GetParam(), shape, {.chunk = 90}, one).run()[0];
      const std::vector<float> found = PagedRun(GetParam(), shape, {.chunk = 1}, one).run()[0];
      ASSERT_TRUE(same_bits(found.data(), expected.data(), found.size()))
          << dtype_name(shape.dtype) << ", keys times " << scale.k;
    }
  }
}

/// Sums of values that are -0 until the last key, after a rescaling to a subnormal: the sign of zero is not
/// of the manner.
TEST_P(Attention, TheSignOfZeroDoesNotDependOnTheMannerEither) {
  const Shape shape{16, 1, 1, 0, DType::kBF16};
  constexpr uint32_t kTokens = 80;
  Sequence sequence(1, shape, kTokens);
  std::fill(sequence.q.begin(), sequence.q.end(), 4.0F);
  std::fill(sequence.k.begin(), sequence.k.end(), 0.0F);
  std::fill(sequence.v.begin(), sequence.v.end(), -0x1p-126F);
  const auto set = [&](std::vector<float>& of, uint32_t key, float value) {
    for (uint32_t d = 0; d < shape.head_dim; ++d) of[key * shape.head_dim + d] = value;
  };
  set(sequence.k, 64, 0.3125F);  // times 16
  set(sequence.k, 65, 0.3125F);
  set(sequence.k, 66, 0.375F);
  set(sequence.k, 67, 0.3125F);
  set(sequence.v, 66, -0.0F);
  set(sequence.v, 67, -0.0F);
  const std::span<const Sequence> one(&sequence, 1);
  const std::vector<float> expected = PagedRun(GetParam(), shape, {.chunk = 1}, one).run()[0];
  const std::vector<float> found = PagedRun(GetParam(), shape, {.chunk = 16}, one).run()[0];
  EXPECT_TRUE(same_bits(found.data(), expected.data(), found.size()));
}

/// Values of int8 have a scale each, and their products are rounded by the largest of 64.
TEST_P(Attention, ValuesOfAllMagnitudesAreNearTheExactResult) {
  const Shape shape{40, 1, 3, 0, DType::kI8};
  Sequence sequence(21, shape, 200);
  for (uint32_t token = 0; token < sequence.tokens; ++token) {
    const float size = std::exp2(static_cast<float>(token * 7 % 41) - 20.0F);
    for (uint32_t d = 0; d < shape.head_dim; ++d) sequence.v[token * shape.head_dim + d] *= size;
  }
  sequence.kept_v = kept(sequence.v, shape.dtype, shape.head_dim);
  const std::span<const Sequence> one(&sequence, 1);
  const std::vector<float> found = PagedRun(GetParam(), shape, {.chunk = 50}, one).run()[0];
  double largest = 0.0;  // of the values that a token sees
  for (uint32_t position = 0; position < sequence.tokens; ++position) {
    for (uint32_t d = 0; d < shape.head_dim; ++d) {
      largest = std::max<double>(largest, std::abs(sequence.kept_v[position * shape.head_dim + d]));
    }
    const double tolerance = largest * (rounds(GetParam(), shape.dtype) ? 0x1p-8 : 0x1p-14);
    for (uint32_t head = 0; head < shape.heads(); ++head) {
      const std::vector<double> expected = naive_row(GetParam(), shape, sequence, position, head);
      for (uint32_t d = 0; d < shape.head_dim; ++d) {
        const size_t at = (size_t{position} * shape.heads() + head) * shape.head_dim + d;
        ASSERT_NEAR(found[at], expected[d], tolerance) << "position " << position << " head " << head;
      }
    }
  }
}

/// A key or a value that is not finite spoils the rows that see it, and no others.
TEST_P(Attention, OfWhatIsNotFiniteIsNotFinite) {
  constexpr uint32_t kTokens = 150;
  constexpr uint32_t kBad = 70;
  const float odd = std::bit_cast<float>(0x7fffffffU);
  for (const auto& [dtype, bad] : {std::pair{DType::kF32, NAN},
                                   {DType::kF32, odd},
                                   {DType::kBF16, NAN},
                                   {DType::kI8, NAN},
                                   {DType::kI8, odd}}) {
    const Shape shape{64, 1, 4, 0, dtype};
    for (const bool is_key : {true, false}) {
      Sequence sequence(9, shape, kTokens);
      const std::span<const Sequence> one(&sequence, 1);
      const std::vector<float> good = PagedRun(GetParam(), shape, {.chunk = kTokens}, one).run()[0];
      (is_key ? sequence.k : sequence.v)[kBad * shape.head_dim + 5] = bad;
      for (const uint32_t chunk : {1U, 40U, kTokens}) {
        const std::vector<float> found = PagedRun(GetParam(), shape, {.chunk = chunk}, one).run()[0];
        const size_t row = size_t{shape.heads()} * shape.head_dim;
        ASSERT_TRUE(same_bits(found.data(), good.data(), kBad * row)) << dtype_name(dtype) << " " << chunk;
        for (size_t i = kBad * row; i < found.size(); ++i) {
          const bool spoiled = is_key || dtype == DType::kI8 || i % shape.head_dim == 5;
          ASSERT_EQ(std::isfinite(found[i]), !spoiled)
              << dtype_name(dtype) << " chunk " << chunk << ", " << i % row << " of token " << i / row;
        }
      }
    }
  }
}

TEST_P(Attention, AQueryThatIsNotFiniteSpoilsItsRowAlone) {
  constexpr uint32_t kTokens = 150;
  constexpr uint32_t kBad = 70;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    const Shape shape{64, 2, 4, 0, dtype};
    const size_t bad_row = (size_t{kBad} * shape.heads() + 1) * shape.head_dim;
    Sequence sequence(9, shape, kTokens);
    const std::span<const Sequence> one(&sequence, 1);
    const std::vector<float> good = PagedRun(GetParam(), shape, {.chunk = kTokens}, one).run()[0];
    for (const float bad : {NAN, std::bit_cast<float>(0x7fffffffU), INFINITY}) {
      sequence.q[bad_row + 5] = bad;
      for (const uint32_t chunk : {1U, 2U, 40U, kTokens}) {
        const std::vector<float> found = PagedRun(GetParam(), shape, {.chunk = chunk}, one).run()[0];
        for (size_t row = 0; row < found.size(); row += shape.head_dim) {
          if (row != bad_row) {
            ASSERT_TRUE(same_bits(found.data() + row, good.data() + row, shape.head_dim))
                << dtype_name(dtype) << " chunk " << chunk << " row " << row / shape.head_dim;
          }
        }
        for (size_t d = 0; d < shape.head_dim; ++d) ASSERT_FALSE(std::isfinite(found[bad_row + d])) << d;
      }
    }
  }
}

/// Scores that rise or fall from stretch to stretch, by more and by less than what a maximum may stay behind.
TEST_P(Attention, ScoresThatRiseDoNotDependOnTheMannerAndAreNearTheExactResult) {
  constexpr uint32_t kTokens = 290;
  for (const float slope : {0.5F, 1.5F, 4.0F, -4.0F}) {
    for (const Shape& shape : {Shape{64, 1, 4, 0, DType::kBF16}, Shape{64, 1, 4, 0, DType::kI8},
                               Shape{128, 1, 3, 0, DType::kBF16}}) {
      if (!has_its_own_attention(GetParam(), shape.dtype)) continue;
      Sequence sequence(3, shape, kTokens);
      for (float& value : sequence.q) value = 1.0F + 0.1F * value;
      for (size_t i = 0; i < sequence.k.size(); ++i) {
        const float progress = static_cast<float>(i / shape.head_dim) / kTokens;
        sequence.k[i] = slope * progress + 0.1F * sequence.k[i];
      }
      sequence.kept_k = kept(sequence.k, shape.dtype, shape.head_dim);
      const std::span<const Sequence> one(&sequence, 1);
      const std::vector<float> expected = PagedRun(GetParam(), shape, {.chunk = kTokens}, one).run()[0];
      expect_close_to_double(GetParam(), shape, sequence, expected);
      if (HasFatalFailure()) return;
      for (const Manner& manner :
           {Manner{1, 16, true, 2}, Manner{23, 32, true, 1}, Manner{150, 64, false, 2}}) {
        const std::vector<float> found = PagedRun(GetParam(), shape, manner, one).run()[0];
        ASSERT_TRUE(same_bits(found.data(), expected.data(), found.size()))
            << dtype_name(shape.dtype) << " head_dim " << shape.head_dim << " slope " << slope
            << ", chunks of " << manner.chunk;
      }
    }
  }
}

std::vector<Shape> long_shapes() {
  std::vector<Shape> all;
  for (const uint32_t window : {0, 30, 1024, 1500}) all.push_back({16, 1, 2, window, DType::kBF16});
  all.push_back({20, 1, 1, 0, DType::kI8});
  return all;
}

TEST_P(Attention, LongContextsAreNearTheExactResult) {
  for (const Shape& shape : long_shapes()) {
    if (!has_its_own_attention(GetParam(), shape.dtype)) continue;
    const Sequence sequence(shape.window, shape, 2300);
    const std::span<const Sequence> one(&sequence, 1);
    expect_close_to_double(GetParam(), shape, sequence,
                           PagedRun(GetParam(), shape, {.chunk = 2300}, one).run()[0]);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Attention, LongContextsDoNotDependOnWhoSharesTheirSpans) {
  for (const Shape& shape : long_shapes()) {
    if (!has_its_own_attention(GetParam(), shape.dtype)) continue;
    const Sequence sequence(shape.window + 1, shape, 2300);
    const std::span<const Sequence> one(&sequence, 1);
    const std::vector<float> expected = PagedRun(GetParam(), shape, {.chunk = 2300}, one).run()[0];
    for (const Manner& manner :
         {Manner{1, 16, true, 2}, Manner{19, 32, true, 4}, Manner{1000, 16, false, 16}}) {
      const std::vector<float> found = PagedRun(GetParam(), shape, manner, one).run()[0];
      ASSERT_TRUE(same_bits(found.data(), expected.data(), found.size()))
          << dtype_name(shape.dtype) << " window " << shape.window << ", chunks of " << manner.chunk << ", "
          << manner.threads << " threads";
    }
  }
}

TEST_P(Attention, ARowDoesNotDependOnOtherSequences) {
  const Shape shape{64, 2, 4, 0, DType::kBF16};
  std::vector<Sequence> sequences;
  for (const uint32_t tokens : {1, 40, 17, 90, 16, 63}) sequences.emplace_back(tokens, shape, tokens);
  for (const Manner& manner : {Manner{1, 16, true, 2}, Manner{13, 16, true, 2}, Manner{100, 32, true, 4}}) {
    const std::vector<std::vector<float>> together = PagedRun(GetParam(), shape, manner, sequences).run();
    for (size_t i = 0; i < sequences.size(); ++i) {
      const std::vector<float> alone =
          PagedRun(GetParam(), shape, {}, std::span<const Sequence>(&sequences[i], 1)).run()[0];
      ASSERT_TRUE(same_bits(together[i].data(), alone.data(), alone.size())) << "sequence " << i;
    }
  }
}

TEST_P(Attention, ARowDoesNotDependOnHowManyHeadsAreComputedTogether) {
  for (const Shape& shape :
       {Shape{64, 8, 2, 0, DType::kBF16}, Shape{40, 4, 1, 30, DType::kBF16}, Shape{64, 8, 2, 0, DType::kI8},
        Shape{20, 6, 2, 30, DType::kI8}, Shape{64, 8, 1, 0, DType::kF32}}) {
    std::vector<Sequence> sequences;
    std::vector<std::vector<float>> alone;  // in one chunk, which is of many rows
    for (uint32_t i = 0; i < 20; ++i) sequences.emplace_back(i, shape, 70 + 2 * i);
    for (const Sequence& sequence : sequences) {
      const std::span<const Sequence> one(&sequence, 1);
      alone.push_back(PagedRun(GetParam(), shape, {.chunk = 120}, one).run()[0]);
    }
    for (const uint32_t threads : {1, 2, 3}) {
      const std::vector<std::vector<float>> together =
          PagedRun(GetParam(), shape, {2, 16, true, threads}, sequences).run();
      for (size_t i = 0; i < sequences.size(); ++i) {
        ASSERT_TRUE(same_bits(together[i].data(), alone[i].data(), alone[i].size()))
            << dtype_name(shape.dtype) << " head_dim " << shape.head_dim << " window " << shape.window
            << ", sequence " << i << ", " << threads << " threads";
      }
    }
  }
}

/// Each thread merges the spans of an item itself, or several share them.
TEST_P(Attention, SpansOfHeadsThatAreComputedTogetherAreThoseOfOne) {
  for (const DType dtype : {DType::kBF16, DType::kI8}) {
    if (!has_its_own_attention(GetParam(), dtype)) continue;
    for (const auto& [count, kv_heads, tokens] :
         {std::tuple<size_t, uint32_t, uint32_t>{1, 2, 3100}, {2, 4, 1100}}) {
      const Shape shape{16, kv_heads, 2, 0, dtype};
      std::vector<Sequence> sequences;
      for (size_t i = 0; i < count; ++i) sequences.emplace_back(i, shape, tokens);
      const std::vector<std::vector<float>> together =
          PagedRun(GetParam(), shape, {1, 48, true, 1}, sequences).run();
      for (size_t i = 0; i < count; ++i) {
        const std::span<const Sequence> one(&sequences[i], 1);
        const std::vector<float> alone = PagedRun(GetParam(), shape, {.chunk = tokens}, one).run()[0];
        ASSERT_TRUE(same_bits(together[i].data(), alone.data(), alone.size()))
            << dtype_name(dtype) << ", sequence " << i << " of " << count;
      }
    }
  }
}

TEST_P(Attention, OfOneKeyIsItsValue) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    const Shape shape{80, 1, 2, 1, dtype};  // a window of one: every token sees itself alone
    const Sequence sequence(3, shape, 40);
    const std::span<const Sequence> one(&sequence, 1);
    const std::vector<float> out = PagedRun(GetParam(), shape, {.chunk = 40}, one).run()[0];
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t value = i / (2 * shape.head_dim) * shape.head_dim + i % shape.head_dim;
      // A weight of 1 is a bf16, but its product with the scale of an int8 is rounded to one; as an i16, what
      // stands for 1 is divided by again.
      float tolerance = has_integer_queries(GetParam(), dtype) ? 0x1p-22F : 0.0F;
      if (dtype == DType::kI8 && rounds(GetParam(), dtype)) tolerance = 0x1p-8F;
      ASSERT_NEAR(out[i], sequence.kept_v[value], tolerance * std::abs(sequence.kept_v[value])) << i;
    }
  }
}

TEST_P(Attention, SurvivesLargeScores) {
  const Shape shape{64, 1, 1, 0, DType::kF32};
  Sequence sequence(5, shape, 70);
  for (float& value : sequence.q) value *= 300.0F;
  const std::span<const Sequence> one(&sequence, 1);
  const std::vector<float> out = PagedRun(GetParam(), shape, {.chunk = 9}, one).run()[0];
  for (const float value : out) ASSERT_LE(std::abs(value), 1.0001F);
}

QUIRE_FOR_ALL_LEVELS(Attention);

}  // namespace
}  // namespace quire::test
