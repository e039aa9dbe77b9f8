// Matrices of ggml's blocks: what is packed is what the file says, and all levels compute the same of it.
#include <bit>
#include <cmath>

#include "base/error.h"
#include "formats/ggml_types.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/matmul.h"
#include "kernels/quantize.h"
#include "tests/kernels/support.h"
#include "tests/support/ggml_blocks.h"

namespace quire::test {
namespace {

const formats::GgmlType& type_of(WeightFormat format) {
  for (const formats::GgmlType& type : formats::ggml_types()) {
    if (type.name == weight_format_name(format)) return type;
  }
  throw Error("ggml has no such type");
}

std::vector<float> dequantized(WeightFormat format, const BlockTensor& blocks, size_t count) {
  std::vector<float> values(count);
  formats::dequantize(type_of(format), blocks.bytes.data(), count, values.data());
  return values;
}

/// Lengths of rows: of one block, of some that fill no stretch of K, and of more than one stretch.
std::vector<size_t> inputs_of(WeightFormat format) {
  if (ggml_block(format).values == 256) return {256, 768, 1280};
  return {32, 96, 256, 544, 1120};
}

class Blocks : public PerLevel {
 protected:
  kernels::KernelContext reference_{kernels::IsaLevel::kReference, pool_};
};

/// A weight as it stands in a panel, read as the comment at BlockLayout says.
class PanelReader {
 public:
  PanelReader(const kernels::PackedMatrix& matrix, size_t n, size_t k)
      : format_(matrix.format()),
        layout_(kernels::cpu::block_layout(format_)),
        lane_(n % 32),
        in_block_(k % 32),
        header_(matrix.data() + n / 32 * kernels::cpu::panel_bytes(format_, matrix.k()) +
                k / layout_.inputs * layout_.bytes()),
        block_(header_ + layout_.header_bytes + k % layout_.inputs / 32 * layout_.block_bytes()) {}

  float value() const {
    const float scale = half(0) * small(in_block_ / layout_.group);
    if (format_ == WeightFormat::kQ4_K) return scale * static_cast<float>(integer()) - half(1) * small(1);
    return scale * static_cast<float>(integer() - layout_.zero);
  }

 private:
  int integer() const {
    const size_t step = in_block_ / 4;
    const size_t row = layout_.nibbles ? step / 2 : step;
    const int byte = static_cast<int>(block_[layout_.scale_bytes + (row * 32 + lane_) * 4 + in_block_ % 4]);
    if (!layout_.nibbles) return byte;
    return step % 2 == 0 ? byte & 15 : byte >> 4;
  }
  float half(size_t kind) const {
    uint16_t bits = 0;
    std::memcpy(&bits, header_ + (kind * 32 + lane_) * 2, sizeof(bits));
    return f16_to_f32(bits);
  }
  float small(size_t kind) const {
    if (layout_.scale_bytes == 0) return 1.0F;
    return static_cast<float>(static_cast<int8_t>(block_[kind * 32 + lane_]));
  }

  WeightFormat format_;
  kernels::cpu::BlockLayout layout_;
  size_t lane_;
  size_t in_block_;
  const std::byte* header_;
  const std::byte* block_;
};

TEST_P(Blocks, ArePackedWithoutLoss) {
  for (const WeightFormat format : kGgmlFormats) {
    for (const size_t n : {1, 31, 32, 33, 70}) {
      for (const size_t k : inputs_of(format)) {
        const BlockTensor blocks(n + k, format, n, k);
        const std::vector<float> expected = dequantized(format, blocks, n * k);
        const kernels::PackedMatrix packed(context_, blocks.view, format);
        ASSERT_EQ(packed.n(), n);
        ASSERT_EQ(packed.k(), k);
        EXPECT_TRUE(packed.finite());
        for (size_t i = 0; i < (n + 31) / 32 * 32; ++i) {
          for (size_t j = 0; j < k; ++j) {
            const float value = PanelReader(packed, i, j).value();
            ASSERT_EQ(value, i < n ? expected[i * k + j] : 0.0F)
                << weight_format_name(format) << " n " << i << " of " << n << ", k " << j << " of " << k;
          }
        }
        const kernels::PackedMatrix plain(reference_, blocks.view, format);
        ASSERT_EQ(packed.num_bytes(), plain.num_bytes());
        EXPECT_EQ(std::memcmp(packed.data(), plain.data(), packed.num_bytes()), 0);
      }
    }
  }
}

TEST_P(Blocks, OfPartsAreThoseOfTheWhole) {
  for (const WeightFormat format : kGgmlFormats) {
    const BlockTensor whole(3, format, 70, 512);
    std::vector<TensorView> parts(2, whole.view);
    parts[0].shape[0] = 21;
    parts[1].shape[0] = 49;
    parts[1].data += 21 * whole.view.shape[1];
    const kernels::PackedMatrix packed(context_, parts, format);
    const kernels::PackedMatrix expected(context_, whole.view, format);
    ASSERT_EQ(packed.num_bytes(), expected.num_bytes());
    EXPECT_EQ(std::memcmp(packed.data(), expected.data(), packed.num_bytes()), 0);
  }
}

/// See Pack.SameVersionSameBytes.
TEST_P(Blocks, SameVersionSameBytes) {
  EXPECT_EQ(kernels::kPackVersion, 1);
  std::vector<uint64_t> digests;
  for (const WeightFormat format : kGgmlFormats) {
    const kernels::PackedMatrix packed(context_, BlockTensor(7, format, 40, 512).view, format);
    uint64_t digest = 0;
    for (const std::byte byte : packed.bytes()) digest = mix64(digest ^ static_cast<uint64_t>(byte));
    digests.push_back(digest);
  }
  EXPECT_EQ(digests, (std::vector<uint64_t>{14817335180120374031U, 2882502109929452438U, 9366072815027449253U,
                                            8391512027617292601U}));
}

TEST_P(Blocks, SayWhetherAllIsFinite) {
  for (const WeightFormat format : kGgmlFormats) {
    for (const size_t place : places_of_halves(format)) {
      for (const uint16_t bad : {0x7c00, 0xfc00, 0x7e00, 0x7c01}) {
        BlockTensor blocks(4, format, 40, 512);
        std::memcpy(blocks.bytes.data() + blocks.bytes.size() - ggml_block(format).bytes + place, &bad, 2);
        EXPECT_FALSE(kernels::PackedMatrix(context_, blocks.view, format).finite())
            << weight_format_name(format);
      }
    }
  }
}

TEST_P(Blocks, RefuseWhatAreNone) {
  for (const WeightFormat format : kGgmlFormats) {
    BlockTensor blocks(5, format, 2, 512);
    TensorView view = blocks.view;
    --view.shape[1];
    EXPECT_THROW(kernels::PackedMatrix(context_, view, format), Error);
    EXPECT_THROW(kernels::PackedMatrix(context_, blocks.view, WeightFormat::kBF16), Error);
    const std::vector<float> values(512);
    const OwnedTensor floats(values, DType::kF32, {1, 512});
    EXPECT_THROW(kernels::PackedMatrix(context_, floats.view, format), Error);
  }
}

std::vector<float> product(kernels::KernelContext& context, const kernels::PackedMatrix& weights,
                           const float* x, size_t m, const float* bias = nullptr) {
  std::vector<float> y(m * weights.n());
  kernels::matmul(context, weights, x, weights.k(), m, y.data(), weights.n(), bias);
  return y;
}

TEST_P(Blocks, GiveTheBitsOfTheReference) {
  for (const WeightFormat format : kGgmlFormats) {
    for (const size_t n : {1, 31, 33, 70}) {
      for (const size_t k : inputs_of(format)) {
        const BlockTensor blocks(n * k, format, n, k);
        const kernels::PackedMatrix packed(context_, blocks.view, format);
        const std::vector<float> bias = random_floats(7, n);
        const std::vector<float> x = random_floats(k, 40 * k, 3.0F);
        const std::vector<float> expected = product(reference_, packed, x.data(), 40, bias.data());
        for (size_t m = 1; m <= 40; m += m < 14 ? 1 : 13) {
          const std::vector<float> y = product(context_, packed, x.data(), m, bias.data());
          ASSERT_TRUE(same_bits(y.data(), expected.data(), y.size()))
              << weight_format_name(format) << " m " << m << ", n " << n << ", k " << k;
        }
      }
    }
  }
}

/// Saved K/V is used again only under the same kKernelVersion: see tests/backend/kernel_version_test.cpp. Of
/// these formats all levels have the same bits.
TEST_P(Blocks, SameVersionSameBits) {
  EXPECT_EQ(kernels::kKernelVersion, 8);
  const std::vector<float> x = random_floats(11, 9 * 512);
  std::vector<uint64_t> digests;
  for (const WeightFormat format : kGgmlFormats) {
    const kernels::PackedMatrix packed(context_, BlockTensor(12, format, 40, 512).view, format);
    uint64_t digest = 0;
    for (const float y : product(context_, packed, x.data(), 9)) {
      digest = mix64(digest ^ std::bit_cast<uint32_t>(y));
    }
    digests.push_back(digest);
  }
  EXPECT_EQ(digests, (std::vector<uint64_t>{6736025764720444678U, 14527070596027210440U,
                                            16267265338798426250U, 4579533110046516113U}));
}

TEST_P(Blocks, TakeTheLargestIntegers) {
  constexpr size_t kK = 512;
  for (const WeightFormat format : kGgmlFormats) {
    for (const int filled : {0x00, 0x80, 0x7f, 0xff}) {
      BlockTensor blocks(6, format, 33, kK);
      const size_t bytes = ggml_block(format).bytes;
      for (size_t i = 0; i < blocks.bytes.size(); ++i) {
        bool is_half = false;
        for (const size_t place : places_of_halves(format)) is_half |= i % bytes / 2 == place / 2;
        if (!is_half) blocks.bytes[i] = static_cast<std::byte>(filled);
      }
      const kernels::PackedMatrix packed(context_, blocks.view, format);
      for (const float sign : {1.0F, -1.0F}) {
        const std::vector<float> x(2 * kK, sign);
        const std::vector<float> expected = product(reference_, packed, x.data(), 2);
        const std::vector<float> y = product(context_, packed, x.data(), 2);
        ASSERT_TRUE(same_bits(y.data(), expected.data(), y.size()))
            << weight_format_name(format) << " bytes of " << filled << " times " << sign;
      }
    }
  }
}

/// Each group adds one or two rounded multiply-adds of exact numbers to what is at most the sum of
/// magnitudes, those of integer and minimum apart, of which either is at most twice a row's largest weight
/// here.
TEST_P(Blocks, AreNearTheExactResult) {
  constexpr size_t kN = 33;
  constexpr size_t kM = 7;
  for (const WeightFormat format : kGgmlFormats) {
    for (const size_t k : inputs_of(format)) {
      const BlockTensor blocks(k, format, kN, k);
      const kernels::PackedMatrix packed(context_, blocks.view, format);
      const std::vector<float> weights = dequantized(format, blocks, kN * k);
      const std::vector<float> x = random_floats(k, kM * k);
      const std::vector<float> y = product(context_, packed, x.data(), kM);
      std::vector<int8_t> row(k);
      for (size_t m = 0; m < kM; ++m) {
        const double scale = kernels::quantize_int8(x.data() + m * k, row.data(), k);
        for (size_t n = 0; n < kN; ++n) {
          double sum = 0.0;
          double most = 0.0;
          double magnitude = 0.0;
          for (size_t j = 0; j < k; ++j) {
            sum += row[j] * scale * weights[n * k + j];
            magnitude += std::abs(row[j] * scale);
            most = std::max(most, std::abs(static_cast<double>(weights[n * k + j])));
          }
          const double bound = (static_cast<double>(k) / 8 + 2) * 0x1.0p-24 * magnitude * 4 * most;
          ASSERT_NEAR(y[m * kN + n], sum, bound) << weight_format_name(format) << " k " << k;
        }
      }
    }
  }
}

TEST_P(Blocks, ARowDoesNotDependOnTheBatchOrTheThreads) {
  if (GetParam() == kernels::IsaLevel::kReference) return;  // a row is all that it knows, and it is slow
  constexpr size_t kRows = 300;
  constexpr size_t kK = 4352;  // so long that the rows are cut into blocks
  ThreadPool four(4);
  kernels::KernelContext many{GetParam(), four};
  for (const WeightFormat format : kGgmlFormats) {
    const BlockTensor blocks(8, format, 75, kK);
    const kernels::PackedMatrix packed(context_, blocks.view, format);
    const std::vector<float> x = random_floats(9, kRows * kK);
    const std::vector<float> y = product(context_, packed, x.data(), kRows);
    EXPECT_EQ(product(many, packed, x.data(), kRows), y);
    for (const size_t row : {0, 1, 5, 6, 149, 150, 151, 299}) {
      const std::vector<float> alone = product(many, packed, x.data() + row * kK, 1);
      ASSERT_TRUE(same_bits(y.data() + row * 75, alone.data(), 75))
          << weight_format_name(format) << " row " << row;
    }
  }
}

TEST_P(Blocks, OfWhatIsNotFiniteAreNotFinite) {
  for (const WeightFormat format : kGgmlFormats) {
    const kernels::PackedMatrix packed(context_, BlockTensor(1, format, 40, 512).view, format);
    for (const size_t rows : {3, 12}) {
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        std::vector<float> x = random_floats(3, rows * 512);
        const std::vector<float> good = product(context_, packed, x.data(), rows);
        x[512 + 77] = bad;
        const std::vector<float> y = product(context_, packed, x.data(), rows);
        for (size_t i = 0; i < 40; ++i) {
          ASSERT_FALSE(std::isfinite(y[40 + i])) << weight_format_name(format) << " " << bad;
          ASSERT_EQ(y[i], good[i]);
          ASSERT_EQ(y[80 + i], good[80 + i]);
        }
      }
    }
  }
}

TEST_P(Blocks, KeepToTheirStridesAndColumns) {
  for (const WeightFormat format : kGgmlFormats) {
    for (const size_t n : {20, 32, 50}) {
      for (const size_t rows : {2, 9}) {
        const kernels::PackedMatrix packed(context_, BlockTensor(n, format, n, 256).view, format);
        const std::vector<float> dense = random_floats(1, rows * 256);
        std::vector<float> x(rows * 261, NAN);
        for (size_t row = 0; row < rows; ++row) {
          std::copy_n(dense.data() + row * 256, 256, x.data() + row * 261);
        }
        const size_t ldy = n + 3;
        std::vector<float> y(rows * ldy, -77.0F);
        kernels::matmul(context_, packed, x.data(), 261, rows, y.data(), ldy);
        const std::vector<float> expected = product(context_, packed, dense.data(), rows);
        for (size_t row = 0; row < rows; ++row) {
          ASSERT_TRUE(same_bits(y.data() + row * ldy, expected.data() + row * n, n));
          for (size_t i = n; i < ldy; ++i) ASSERT_EQ(y[row * ldy + i], -77.0F);
        }
      }
    }
  }
}

TEST_P(Blocks, OfNoInputsAreTheBias) {
  const float none = 0.0F;
  const std::vector<float> bias = random_floats(7, 40);
  for (const WeightFormat format : kGgmlFormats) {
    const kernels::PackedMatrix packed(context_, BlockTensor(1, format, 40, 0).view, format);
    EXPECT_EQ(product(context_, packed, &none, 1, bias.data()), bias);
  }
}

QUIRE_FOR_ALL_LEVELS(Blocks);

}  // namespace
}  // namespace quire::test
