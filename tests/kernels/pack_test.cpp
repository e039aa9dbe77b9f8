#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/rng.h"
#include "kernels/cpu/table.h"
#include "kernels/matmul.h"
#include "kernels/quantize.h"
#include "tests/kernels/support.h"

namespace quire::test {
namespace {

constexpr DType kPackedFrom[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr WeightFormat kPackedTo[] = {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16,
                                      WeightFormat::kInt8, WeightFormat::kInt4};

class Pack : public PerLevel {
 protected:
  kernels::KernelContext reference_{kernels::IsaLevel::kReference, pool_};
};

testing::AssertionResult same_bytes(const kernels::PackedMatrix& a, const kernels::PackedMatrix& b) {
  if (a.num_bytes() != b.num_bytes()) return testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < a.num_bytes(); ++i) {
    if (a.bytes()[i] != b.bytes()[i]) {
      return testing::AssertionFailure() << "byte " << i << " of " << a.num_bytes() << " differs";
    }
  }
  return testing::AssertionSuccess();
}

/// Of every size that a float may have, with zeros and whole groups of them between.
std::vector<float> values_of_all_sizes(uint64_t seed, size_t count) {
  SplitMix64 rng(seed);
  std::vector<float> values = random_floats(seed, count, 0.1F);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t draw = rng.next() % 100;
    if (draw < 5) values[i] = 0.0F;
    if (draw == 5) values[i] *= 1e20F;
    if (draw == 6) values[i] *= 1e-20F;
    if (draw == 7) values[i] = -values[i] * 1e-38F;
    if (draw == 8 && i % 32 == 0) std::fill_n(values.begin() + i, std::min<size_t>(64, count - i), -0.0F);
  }
  return values;
}

/// Packed weights that were kept are used again only under the same kPackVersion. If these fail, raise it in
/// kernels/matmul.h and write down the digests that they say.
TEST_P(Pack, SameVersionSameBytes) {
  EXPECT_EQ(kernels::kPackVersion, 1);
  const std::vector<float> values = random_floats(7, 40 * 100);
  const OwnedTensor tensor(values, DType::kBF16, {40, 100});
  std::vector<uint64_t> digests;
  for (const WeightFormat format : kPackedTo) {
    const kernels::PackedMatrix packed(context_, tensor.view, format);
    uint64_t digest = 0;
    for (const std::byte byte : packed.bytes()) {
      digest = mix64(digest ^ static_cast<uint64_t>(byte));
    }
    digests.push_back(digest);
  }
  EXPECT_EQ(digests, (std::vector<uint64_t>{1068241144156179998U, 4809193722287108288U, 8764861717468042503U,
                                            3290969564602898202U, 5225956911802075214U}));
}

TEST_P(Pack, GivesTheBytesOfTheReference) {
  for (const DType from : kPackedFrom) {
    for (const size_t n : {1, 8, 31, 32, 33, 100}) {
      for (const size_t k : {1, 2, 15, 16, 17, 31, 64, 101, 256, 513, 1000}) {
        const auto shape = {static_cast<int64_t>(n), static_cast<int64_t>(k)};
        const OwnedTensor usual(random_floats(n * 1000 + k, n * k), from, shape);
        const OwnedTensor unusual(values_of_all_sizes(n * 1000 + k, n * k), from, shape);
        for (const WeightFormat format : kPackedTo) {
          for (const TensorView& view : {usual.view, unusual.view}) {
            ASSERT_TRUE(same_bytes(kernels::PackedMatrix(context_, view, format),
                                   kernels::PackedMatrix(reference_, view, format)))
                << dtype_name(from) << " to " << weight_format_name(format) << ", n " << n << ", k " << k;
          }
        }
      }
    }
  }
}

TEST_P(Pack, InterleavesAnyNumberOfRows) {
  constexpr size_t kUntouched = 64;
  const kernels::cpu::PackTable& native = kernels::cpu::pack_table(context_.isa);
  for (const size_t rows : {1, 2, 6, 7, 8, 9, 13, 14, 15, 16, 17, 31, 32}) {
    for (const size_t units : {0, 1, 7, 8, 15, 16, 17, 64}) {
      std::vector<std::vector<uint32_t>> lines(rows, std::vector<uint32_t>(units));
      std::vector<const std::byte*> from(rows);
      std::vector<uint32_t> expected(units * rows + kUntouched, 7);
      std::vector<uint32_t> got = expected;
      for (size_t row = 0; row < rows; ++row) {
        if (row != 3) from[row] = reinterpret_cast<const std::byte*>(lines[row].data());
        for (size_t unit = 0; unit < units; ++unit) {
          lines[row][unit] = static_cast<uint32_t>(1000 * row + unit + 1);
          expected[unit * rows + row] = row == 3 ? 0 : lines[row][unit];
        }
      }
      native.interleave(from.data(), rows, units, reinterpret_cast<std::byte*>(got.data()));
      EXPECT_EQ(got, expected) << rows << " rows, " << units << " units";
    }
  }
}

TEST_P(Pack, ReadsNothingBehindARow) {
  // Rows at the very end of their memory, which a sanitizer watches.
  for (const size_t k : {1, 3, 17, 33}) {
    const std::vector<float> values = random_floats(k, k);
    std::vector<uint16_t> bits(k);
    for (size_t i = 0; i < k; ++i) bits[i] = f32_to_bf16(values[i]);
    const TensorView view{
        DType::kBF16, {1, static_cast<int64_t>(k)}, reinterpret_cast<const std::byte*>(bits.data())};
    for (const WeightFormat format : kPackedTo) {
      EXPECT_TRUE(same_bytes(kernels::PackedMatrix(context_, view, format),
                             kernels::PackedMatrix(reference_, view, format)));
    }
  }
}

TEST_P(Pack, OfPartsIsThatOfTheWhole) {
  constexpr size_t kK = 70;
  const std::vector<float> values = random_floats(3, 150 * kK);
  const OwnedTensor whole(values, DType::kBF16, {150, kK});
  for (const WeightFormat format : kPackedTo) {
    for (const size_t cut : {1, 31, 32, 75, 149}) {
      std::vector<TensorView> parts(3, whole.view);
      parts[0].shape[0] = static_cast<int64_t>(cut);
      parts[1].shape[0] = 0;
      parts[2].shape[0] = static_cast<int64_t>(150 - cut);
      parts[1].data = parts[2].data = whole.view.data + cut * kK * 2;
      std::vector<std::atomic<int>> read(150);
      const kernels::PackedMatrix packed(
          context_, parts, format, [&](size_t part, size_t first, size_t count) {
            ASSERT_LE(first + count, static_cast<size_t>(parts[part].shape[0]));
            for (size_t row = first; row < first + count; ++row) ++read[row + (part == 2 ? cut : 0)];
          });
      EXPECT_TRUE(same_bytes(packed, kernels::PackedMatrix(context_, whole.view, format)));
      for (const std::atomic<int>& times : read) EXPECT_EQ(times, 1);
    }
  }
}

TEST_P(Pack, OfPartsOfTwoTypes) {
  constexpr size_t kK = 33;
  const std::vector<float> values = random_floats(4, 50 * kK);
  std::vector<float> rounded = values;
  for (size_t i = 20 * kK; i < values.size(); ++i) rounded[i] = stored(values[i], DType::kBF16);
  const OwnedTensor first({values.begin(), values.begin() + 20 * kK}, DType::kF32, {20, kK});
  const OwnedTensor second({values.begin() + 20 * kK, values.end()}, DType::kBF16, {30, kK});
  const OwnedTensor whole(rounded, DType::kF32, {50, kK});
  const std::vector<TensorView> parts = {first.view, second.view};
  for (const WeightFormat format : kPackedTo) {
    EXPECT_TRUE(same_bytes(kernels::PackedMatrix(context_, parts, format),
                           kernels::PackedMatrix(context_, whole.view, format)));
  }
}

TEST_P(Pack, SaysWhetherAllIsFinite) {
  constexpr size_t kN = 70;
  constexpr size_t kK = 100;
  for (const DType dtype : kPackedFrom) {
    std::vector<float> values = random_floats(5, kN * kK);
    values[17] = dtype == DType::kF16 ? 65504.0F : std::numeric_limits<float>::max() / 2;
    for (const WeightFormat format : kPackedTo) {
      EXPECT_TRUE(
          kernels::PackedMatrix(context_, OwnedTensor(values, dtype, {kN, kK}).view, format).finite());
      for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
        for (const size_t place : {size_t{0}, kK * 33 + 99, kN * kK - 1}) {
          std::vector<float> broken = values;
          broken[place] = bad;
          const OwnedTensor tensor(broken, dtype, {kN, kK});
          EXPECT_FALSE(kernels::PackedMatrix(context_, tensor.view, format).finite())
              << dtype_name(dtype) << " " << weight_format_name(format) << " " << bad << " at " << place;
        }
      }
    }
  }
}

TEST_P(Pack, OfBytesIsTheSameMatrix) {
  const std::vector<float> values = random_floats(6, 50 * 70);
  const std::vector<float> x = random_floats(7, 3 * 70);
  for (const WeightFormat format : kPackedTo) {
    const kernels::PackedMatrix packed(context_, OwnedTensor(values, DType::kBF16, {50, 70}).view, format);
    EXPECT_EQ(kernels::PackedMatrix::bytes_of(50, 70, format), packed.num_bytes());
    const kernels::PackedMatrix again(50, 70, format, packed.bytes().data(), true);
    std::vector<float> y(3 * 50);
    std::vector<float> other(3 * 50);
    kernels::matmul(context_, packed, x.data(), 70, 3, y.data(), 50);
    kernels::matmul(context_, again, x.data(), 70, 3, other.data(), 50);
    EXPECT_TRUE(same_bits(y.data(), other.data(), y.size()));
  }
}

TEST(PackRefuses, WhatDoesNotBelongTogether) {
  ThreadPool pool(1);
  kernels::KernelContext context{kernels::IsaLevel::kReference, pool};
  const OwnedTensor wide(random_floats(1, 8), DType::kF32, {2, 4});
  const OwnedTensor narrow(random_floats(1, 8), DType::kF32, {4, 2});
  const std::vector<TensorView> parts = {wide.view, narrow.view};
  EXPECT_THROW(kernels::PackedMatrix(context, parts, WeightFormat::kF32), Error);
  EXPECT_THROW(kernels::PackedMatrix(context, std::span<const TensorView>{}, WeightFormat::kF32), Error);
}

QUIRE_FOR_ALL_LEVELS(Pack);

/// One of zeros, one of infinity and one of NaN among them.
TEST(Int4Rows, AreQuantizedAsOneByOne) {
  for (const size_t k : {8U, 32U, 72U, 200U, 256U}) {
    for (const size_t count : {size_t{1}, size_t{19}, kernels::kInt4Rows}) {
      SCOPED_TRACE(testing::Message() << count << " rows of " << k);
      std::vector<float> rows = random_floats(k, count * k);
      if (count > 4) {
        std::fill_n(rows.begin() + static_cast<ptrdiff_t>(2 * k), k, 0.0F);
        rows[3 * k + 5] = std::numeric_limits<float>::infinity();
        rows[4 * k] = std::numeric_limits<float>::quiet_NaN();
      }
      const size_t groups = (k + kernels::kInt4Group - 1) / kernels::kInt4Group;
      std::vector<int8_t> integers(count * k);
      std::vector<int8_t> scaled(count * groups);
      std::vector<float> scales(count);
      kernels::quantize_int4_rows(rows.data(), count, k, integers.data(), scaled.data(), scales.data());
      std::vector<int8_t> one(k);
      std::vector<int8_t> one_scaled(groups);
      for (size_t row = 0; row < count; ++row) {
        const float scale = kernels::quantize_int4(rows.data() + row * k, k, one.data(), one_scaled.data());
        ASSERT_EQ(std::isnan(scales[row]), std::isnan(scale)) << row;
        if (std::isnan(scale)) continue;
        EXPECT_EQ(scales[row], scale) << row;
        EXPECT_TRUE(std::equal(one.begin(), one.end(), integers.data() + row * k)) << row;
        EXPECT_TRUE(std::equal(one_scaled.begin(), one_scaled.end(), scaled.data() + row * groups)) << row;
      }
    }
  }
}

}  // namespace
}  // namespace quire::test
