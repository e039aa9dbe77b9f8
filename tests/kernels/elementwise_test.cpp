#include "kernels/elementwise.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/cpu/table.h"
#include "kernels/quantize.h"
#include "tests/kernels/support.h"

namespace quire::test {
namespace {

constexpr size_t kWidths[] = {1, 7, 8, 15, 16, 20, 64, 80, 129, 2048, 2051};

class Elementwise : public PerLevel {};

double units_in_last_place(double value) {
  return std::max(std::abs(value) * 0x1.0p-23, 0x1.0p-149);  // of f32
}

TEST_P(Elementwise, RmsNormIsWithin8UlpOfDouble) {
  constexpr size_t kRows = 11;
  for (const size_t width : kWidths) {
    const size_t ldx = width + 3;
    const std::vector<float> x = random_floats(width, kRows * ldx, 3.0F);
    const std::vector<float> weight = random_floats(1, width);
    std::vector<float> y(kRows * width);
    kernels::rms_norm(context_, x.data(), ldx, weight.data(), 1e-5F, y.data(), width, kRows, width);
    for (size_t row = 0; row < kRows; ++row) {
      double sum = 0.0;
      for (size_t i = 0; i < width; ++i) sum += std::pow(static_cast<double>(x[row * ldx + i]), 2);
      const double scale = 1.0 / std::sqrt(sum / static_cast<double>(width) + static_cast<double>(1e-5F));
      for (size_t i = 0; i < width; ++i) {
        const double expected = x[row * ldx + i] * scale * weight[i];
        ASSERT_NEAR(y[row * width + i], expected, 8 * units_in_last_place(expected)) << width << " " << i;
      }
    }
  }
}

TEST_P(Elementwise, RmsNormInPlaceAndARowAloneGiveTheSameBits) {
  constexpr size_t kRows = 40;
  ThreadPool one(1);
  kernels::KernelContext single{GetParam(), one};
  for (const size_t width : kWidths) {
    std::vector<float> x = random_floats(width, kRows * width);
    const std::vector<float> weight = random_floats(1, width);
    std::vector<float> alone(kRows * width);
    for (size_t row = 0; row < kRows; ++row) {
      const size_t at = row * width;
      kernels::rms_norm(single, x.data() + at, width, weight.data(), 1e-6F, alone.data() + at, width, 1,
                        width);
    }
    kernels::rms_norm(context_, x.data(), width, weight.data(), 1e-6F, x.data(), width, kRows, width);
    ASSERT_TRUE(same_bits(x.data(), alone.data(), x.size())) << width;
  }
}

TEST_P(Elementwise, AddsExactly) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{17}, size_t{100003}}) {
    const std::vector<float> x = random_floats(1, count);
    const std::vector<float> before = random_floats(2, count);
    std::vector<float> y = before;
    kernels::add_in_place(context_, y.data(), x.data(), count);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(y[i], before[i] + x[i]);
  }
}

TEST_P(Elementwise, AddsATimesAFactor) {
  constexpr size_t kCount = 1003;
  const std::vector<float> x = random_floats(1, kCount);
  const std::vector<float> before = random_floats(2, kCount);
  std::vector<float> y = before;
  kernels::add_in_place(context_, y.data(), x.data(), kCount, 0.22F);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(y[i], static_cast<double>(before[i]) + static_cast<double>(x[i]) * 0.22F, 2e-7);
  }
  kernels::scale_in_place(context_, y.data(), kCount, 1.0F / 3.0F);
  for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(y[i], (before[i] + x[i] * 0.22) / 3.0, 2e-7);
}

TEST_P(Elementwise, SoftCapIsWithin6UlpOfDouble) {
  for (const float cap : {1.0F, 30.0F}) {
    for (const float scale : {1e-6F, 0.1F, 1.0F, 20.0F, 400.0F}) {
      const std::vector<float> x = random_floats(7, 2051, scale);
      std::vector<float> y = x;
      kernels::soft_cap(context_, y.data(), y.size(), cap);
      for (size_t i = 0; i < x.size(); ++i) {
        const double expected = std::tanh(static_cast<double>(x[i]) / cap) * cap;
        ASSERT_NEAR(y[i], expected, 6 * units_in_last_place(expected)) << x[i] << " capped at " << cap;
        float alone = x[i];
        kernels::soft_cap(context_, &alone, 1, cap);
        ASSERT_TRUE(same_bits(&alone, &y[i], 1));
      }
    }
  }
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> edges = {kInf, -kInf, 0.0F, -0.0F, NAN, 1e38F};
  kernels::soft_cap(context_, edges.data(), edges.size(), 5.0F);
  EXPECT_EQ(edges[0], 5.0F);
  EXPECT_EQ(edges[1], -5.0F);
  EXPECT_EQ(edges[2], 0.0F);
  EXPECT_EQ(edges[3], 0.0F);
  EXPECT_TRUE(std::isnan(edges[4]));
  EXPECT_EQ(edges[5], 5.0F);
}

/// Where gelu is all but 0, so is its error: exp(-2 u) errs by some ulp of u times u.
TEST_P(Elementwise, GegluIsNearTheExactResult) {
  for (const size_t width : kWidths) {
    constexpr size_t kRows = 13;
    const std::vector<float> gate_up = random_floats(width, kRows * 2 * width, 6.0F);
    std::vector<float> out(kRows * width);
    kernels::geglu(context_, gate_up.data(), out.data(), kRows, width);
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t i = 0; i < width; ++i) {
        const double gate = gate_up[row * 2 * width + i];
        const double up = gate_up[row * 2 * width + width + i];
        const double u = std::sqrt(2.0 / 3.14159265358979323846) * (gate + 0.044715 * gate * gate * gate);
        const double expected = 0.5 * gate * (1.0 + std::tanh(u)) * up;
        ASSERT_NEAR(out[row * width + i], expected, 40 * units_in_last_place(expected) + 1e-12) << gate;
        const float pair[2] = {gate_up[row * 2 * width + i], gate_up[row * 2 * width + width + i]};
        float alone = 0.0F;
        kernels::geglu(context_, pair, &alone, 1, 1);
        ASSERT_TRUE(same_bits(&alone, &out[row * width + i], 1));
      }
    }
  }
}

TEST_P(Elementwise, SwigluIsWithin6UlpOfDouble) {
  for (const size_t width : kWidths) {
    constexpr size_t kRows = 13;
    const std::vector<float> gate_up = random_floats(width, kRows * 2 * width, 85.0F);
    std::vector<float> out(kRows * width);
    kernels::swiglu(context_, gate_up.data(), out.data(), kRows, width);
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t i = 0; i < width; ++i) {
        const double gate = gate_up[row * 2 * width + i];
        const double expected = gate / (1.0 + std::exp(-gate)) * gate_up[row * 2 * width + width + i];
        ASSERT_NEAR(out[row * width + i], expected, 6 * units_in_last_place(expected)) << gate;
      }
    }
  }
}

TEST_P(Elementwise, SwigluBehavesAtTheEdges) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> gates = {0.0F, -0.0F, 200.0F, -200.0F, kInf, -88.5F, 88.9F, NAN, 1e-30F, -104.0F};
  std::vector<float> gate_up = gates;
  gate_up.resize(2 * gates.size(), 1.0F);
  std::vector<float> out(gates.size());
  kernels::swiglu(context_, gate_up.data(), out.data(), 1, gates.size());
  for (size_t i = 0; i < gates.size(); ++i) {
    const double expected = gates[i] / (1.0 + std::exp(-static_cast<double>(gates[i])));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(out[i]));
    } else if (std::isinf(expected)) {
      EXPECT_EQ(out[i], kInf);
    } else {
      EXPECT_NEAR(out[i], expected, 6 * units_in_last_place(expected) + 1e-37) << gates[i];
    }
  }
}

TEST_P(Elementwise, AnElementDoesNotDependOnItsPlace) {
  constexpr size_t kWidth = 75;
  const std::vector<float> gate_up = random_floats(3, 2 * kWidth, 5.0F);
  std::vector<float> whole(kWidth);
  kernels::swiglu(context_, gate_up.data(), whole.data(), 1, kWidth);
  for (size_t i = 0; i < kWidth; ++i) {
    const float pair[2] = {gate_up[i], gate_up[kWidth + i]};
    float alone = 0.0F;
    kernels::swiglu(context_, pair, &alone, 1, 1);
    ASSERT_TRUE(same_bits(&alone, &whole[i], 1)) << i;
  }
}

TEST_P(Elementwise, RopeTurnsPairsAndLeavesTheRest) {
  constexpr size_t kRows = 9;
  constexpr uint32_t kHeads = 3;
  constexpr uint32_t kPositions = 50;
  for (const auto& [head_dim, rotary] :
       {std::pair<uint32_t, uint32_t>{8, 8}, {64, 64}, {80, 32}, {20, 20}, {128, 128}, {64, 6}, {96, 48}}) {
    const size_t ldx = size_t{kHeads} * head_dim + 5;
    const std::vector<float> cos_sin = random_floats(2, size_t{kPositions} * rotary);
    const std::vector<float> before = random_floats(head_dim, kRows * ldx);
    std::vector<float> x = before;
    std::vector<uint32_t> positions(kRows);
    for (size_t row = 0; row < kRows; ++row) positions[row] = static_cast<uint32_t>(row * 17 % kPositions);
    kernels::rope(context_, x.data(), ldx, kRows, kHeads, head_dim, rotary, cos_sin.data(), positions.data());
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t i = 0; i < ldx; ++i) {
        const size_t in_head = i % head_dim;
        double expected = before[row * ldx + i];
        if (i < size_t{kHeads} * head_dim && in_head < rotary) {
          const size_t half = rotary / 2;
          const bool low = in_head < half;
          const size_t pair = low ? in_head : in_head - half;
          const float* angle = cos_sin.data() + size_t{positions[row]} * rotary + pair;
          const double other = before[row * ldx + (low ? i + half : i - half)];
          expected = expected * angle[0] + (low ? -1.0 : 1.0) * other * angle[half];
          ASSERT_NEAR(x[row * ldx + i], expected, 2e-7) << head_dim << " " << i;
        } else {
          ASSERT_EQ(x[row * ldx + i], before[row * ldx + i]) << head_dim << " " << i;
        }
      }
    }
  }
}

TEST_P(Elementwise, EmbedLooksUpAndWidens) {
  constexpr size_t kVocab = 60;
  const std::vector<TokenId> tokens = {3, 0, 59, 3, 17};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const size_t width : kWidths) {
      const std::vector<float> values = random_floats(width, kVocab * width);
      const OwnedTensor table(values, dtype, {kVocab, static_cast<int64_t>(width)});
      std::vector<float> out(tokens.size() * width);
      kernels::embed(context_, table.view, tokens, out.data());
      for (size_t row = 0; row < tokens.size(); ++row) {
        for (size_t i = 0; i < width; ++i) {
          ASSERT_EQ(out[row * width + i],
                    stored(values[static_cast<size_t>(tokens[row]) * width + i], dtype));
        }
      }
    }
  }
}

/// Of all magnitudes; of what is not finite the scale is one NaN, whichever that was.
TEST_P(Elementwise, QuantizesAsTheReferenceDoes) {
  const kernels::cpu::KernelTable& kernels = kernels::cpu::table(GetParam());
  for (const size_t count : {1, 8, 20, 63, 64, 100}) {
    std::vector<int8_t> found(count);
    std::vector<int8_t> expected(count);
    for (const float size : {1.0F, 1e30F, 1e-30F, 0x1p-120F, 0x1p-121F, 1e-38F, 1e-44F, 0.0F}) {
      std::vector<float> values = random_floats(count, count);
      values[count / 2] = -1.0F;
      for (float& value : values) value *= size;
      const float scale = kernels::quantize_int8(values.data(), expected.data(), count);
      ASSERT_EQ(kernels.quantize(values.data(), found.data(), count), scale) << size;
      ASSERT_EQ(found, expected) << size;
      ASSERT_EQ(*std::min_element(found.begin(), found.end()), size >= 0x1p-120F ? -127 : 0) << size;
    }
    for (const uint32_t bits :
         {0x7fc00000U, 0x7fffffffU, 0xffc00001U, 0x7f800001U, 0x7f800000U, 0xff800000U}) {
      std::vector<float> values = random_floats(count, count);
      values[count / 2] = std::bit_cast<float>(bits);
      EXPECT_EQ(std::bit_cast<uint32_t>(kernels.quantize(values.data(), found.data(), count)), 0x7fc00000U)
          << std::hex << bits;
    }
  }
}

TEST_P(Elementwise, ConversionsAreExactlyThoseOfDtype) {
  const kernels::cpu::KernelTable& kernels = kernels::cpu::table(GetParam());
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const size_t index = kernels::cpu::float_index(dtype);
    const auto widen = dtype == DType::kF16 ? f16_to_f32 : bf16_to_f32;
    const auto narrow = dtype == DType::kF16 ? f32_to_f16 : f32_to_bf16;
    std::vector<uint16_t> all(65536);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
    std::vector<float> widened(all.size());
    kernels.to_f32[index](all.data(), widened.data(), all.size());
    std::vector<float> samples;
    for (size_t i = 0; i < all.size(); ++i) {
      const float expected = widen(all[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(widened[i]));
        continue;
      }
      ASSERT_EQ(std::bit_cast<uint32_t>(widened[i]), std::bit_cast<uint32_t>(expected)) << i;
      // The value, its neighbours, and the midpoint to the next with its neighbours.
      const auto bits = std::bit_cast<uint32_t>(expected);
      const uint32_t half = dtype == DType::kF16 ? 0x1000U : 0x8000U;
      for (const uint32_t near : {bits, bits + 1, bits - 1, bits + half, bits + half + 1, bits + half - 1}) {
        samples.push_back(std::bit_cast<float>(near));
      }
    }
    SplitMix64 rng(9);
    for (int i = 0; i < 200001; ++i)
      samples.push_back(std::bit_cast<float>(static_cast<uint32_t>(rng.next())));
    std::vector<uint16_t> narrowed(samples.size());
    kernels.from_f32[index](samples.data(), narrowed.data(), samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      if (std::isnan(samples[i])) {
        ASSERT_TRUE(std::isnan(widen(narrowed[i])));
      } else {
        ASSERT_EQ(narrowed[i], narrow(samples[i])) << dtype_name(dtype) << " " << samples[i];
      }
    }
  }
}

QUIRE_FOR_ALL_LEVELS(Elementwise);

TEST(IsaLevels, AreNamedAndBeginWithTheReference) {
  ASSERT_FALSE(kernels::available_isa_levels().empty());
  EXPECT_EQ(kernels::available_isa_levels().front(), kernels::IsaLevel::kReference);
  for (const kernels::IsaLevel level : kernels::available_isa_levels())
    EXPECT_EQ(kernels::parse_isa(kernels::isa_name(level)), level);
  EXPECT_EQ(kernels::parse_isa("avx1024"), std::nullopt);
}

}  // namespace
}  // namespace quire::test
