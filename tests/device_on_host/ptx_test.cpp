#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/dtype.h"
#include "tests/device_on_host/ptx_probe.h"
#include "tests/device_on_host/support.h"

// What the entries of ptx.h mean on the host is what the PTX ISA documents of the instruction.
namespace quire::test::fibers {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The results for the first operands; the other threads get the last one.
template <class Out, class In>
std::vector<Out> results(const char* entry, std::vector<In> operands) {
  const size_t count = operands.size();
  operands.resize(kProbeThreads, operands.back());
  Device device(0);
  DeviceArray<In> in(device, "in", operands);
  DeviceArray<Out> out(device, "out", kProbeThreads);
  probe(entry, in.data(), out.data());
  EXPECT_TRUE(device.findings().empty()) << device.report();
  return {out.values().begin(), out.values().begin() + static_cast<ptrdiff_t>(count)};
}

TEST(Ptx, LoadsAndStoresMoveSixteenBytes) {
  for (const char* entry : {"load_128", "load_readonly_128", "shared_128", "copy_async"}) {
    std::vector<uint32_t> words(kProbeThreads * 4);
    std::iota(words.begin(), words.end(), 1);
    Device device(0, true);
    DeviceArray<uint32_t> in(device, "in", words);
    DeviceArray<uint32_t> out(device, "out", words.size());
    probe(entry, in.data(), out.data());
    EXPECT_TRUE(device.findings().empty()) << device.report();
    const bool swapped = std::string_view(entry).find("load") != 0;  // with the neighbour's
    for (size_t i = 0; i < words.size(); ++i) EXPECT_EQ(out.values()[swapped ? i ^ 4 : i], words[i]) << entry;
#ifndef QUIRE_REAL_DEVICE
    // One access of a warp each, of which a device makes four turns.
    EXPECT_EQ(device.traffic().at(entry).global_accesses, 2U);
#endif
  }
}

/// What the PTX ISA draws for a fragment of an 8 x 8 matrix: the row and the first column that a lane has.
uint32_t row_of(uint32_t lane) { return lane / 4; }
uint32_t column_of(uint32_t lane) { return lane % 4 * 2; }

TEST(Ptx, MatricesComeToLanesByRowsOrByColumns) {
  std::vector<uint16_t> elements(kProbeThreads * 8);  // of matrix i: [8 i + row][column]
  std::iota(elements.begin(), elements.end(), 1);
  for (const bool transposed : {false, true}) {
    Device device(0);
    DeviceArray<uint16_t> in(device, "in", elements);
    DeviceArray<uint16_t> out(device, "out", elements.size());
    SCOPED_TRACE(transposed ? "load_transposed" : "load_matrices");
    probe(transposed ? "load_transposed" : "load_matrices", in.data(), out.data());
    EXPECT_TRUE(device.findings().empty()) << device.report();
    for (uint32_t i = 0; i < elements.size(); ++i) {
      const uint32_t lane = i / 8;
      const uint32_t matrix = i % 8 / 2;
      const uint32_t row = row_of(lane);
      const uint32_t column = column_of(lane) + i % 2;
      EXPECT_EQ(out.values()[i],
                elements[transposed ? (matrix * 8 + column) * 8 + row : (matrix * 8 + row) * 8 + column]);
    }
  }
}

/// Of a product of 16 x 16 and 16 x 8.
template <class ToBits>
void expect_product(const char* entry, const ToBits& to_bits) {
  std::vector<float> a(16 * 16);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7 % 11) - 5.0F;
  // Matrix i of a has the rows from 8 (i % 2) and the columns from 8 (i / 2) on. The probe's right side is
  // the transpose of the upper left and the lower left.
  std::vector<uint16_t> fragments(kProbeThreads * 8);
  for (uint32_t i = 0; i < fragments.size(); ++i) {
    const uint32_t matrix = i % 8 / 2;
    const uint32_t row = matrix % 2 * 8 + row_of(i / 8);
    fragments[i] = to_bits(a[row * 16 + matrix / 2 * 8 + column_of(i / 8) + i % 2]);
  }
  Device device(0);
  DeviceArray<uint16_t> in(device, "in", fragments);
  DeviceArray<float> out(device, "out", kProbeThreads * 4);
  probe(entry, in.data(), out.data());
  EXPECT_TRUE(device.findings().empty()) << device.report();
  SCOPED_TRACE(entry);
  for (uint32_t i = 0; i < kProbeThreads * 4; ++i) {
    const uint32_t row = row_of(i / 4) + i % 4 / 2 * 8;
    const uint32_t column = column_of(i / 4) + i % 2;
    float expected = 0.0F;
    for (uint32_t k = 0; k < 16; ++k) expected += a[row * 16 + k] * a[(k / 8 * 8 + column) * 16 + k % 8];
    EXPECT_EQ(out.values()[i], expected) << "row " << row << " column " << column;
  }
}

TEST(Ptx, MultipliesMatrices) {
  expect_product("multiply_add<Bf16>", f32_to_bf16);
  expect_product("multiply_add<F16>", f32_to_f16);
}

TEST(Ptx, RoundsOnceOrTwice) {
  const float x = 0x1.001p0F;  // its square needs more bits than there are
  EXPECT_EQ((results<float, float>("fused", {x}))[0], 0x1.0008p-11F);
  EXPECT_EQ((results<float, float>("product", {x}))[0], 0x1p-11F);
}

/// (x - 1)^2, where the square of x needs more bits than an element has.
TEST(Ptx, RoundsPairsOnce) {
  const auto word = [](uint32_t low, uint32_t high) { return low | high << 16; };
  // 1 + 2^-7, and 3.
  EXPECT_EQ((results<uint32_t, uint32_t>("fused_pair<Bf16>", {word(0x3f81, 0x4040)}))[0],
            word(f32_to_bf16(0x1p-14F), f32_to_bf16(4.0F)));
  // 1 + 2^-10, and -2.
  EXPECT_EQ((results<uint32_t, uint32_t>("fused_pair<F16>", {word(0x3c01, 0xc000)}))[0],
            word(f32_to_f16(0x1p-20F), f32_to_f16(9.0F)));
}

TEST(Ptx, StoresTwoFloats) {
  EXPECT_EQ((results<float, float>("store_64", {3.0F, 4.0F, 5.0F, 6.0F})),
            (std::vector<float>{3.0F, -3.0F, 5.0F, -5.0F}));
}

/// Each adds 1 to what those before it have left.
TEST(Ptx, KernelsThatBeginEarlyWaitForEarlierOnes) {
  EXPECT_EQ((results<float, float>("early", {1.0F, 2.0F})),
            (std::vector<float>{1.0F + kProbeLaunches, 2.0F + kProbeLaunches}));
}

TEST(Ptx, Exp2) {
  const std::vector<float> y =
      results<float, float>("exp2_approx", {0.0F, 3.0F, -1.0F, -kInfinity, kInfinity, -140.0F});
  const std::vector<float> expected = {1.0F, 8.0F, 0.5F, 0.0F, kInfinity, 0.0F};
  // Within 4 ulp; documented are 2.
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_FLOAT_EQ(y[i], expected[i]);
}

TEST(Ptx, Rsqrt) {
  const std::vector<float> y = results<float, float>("rsqrt_approx", {4.0F, 0.25F, 2.0F});
  EXPECT_FLOAT_EQ(y[0], 0.5F);
  EXPECT_FLOAT_EQ(y[1], 2.0F);
  EXPECT_NEAR(y[2], std::sqrt(0.5), 1e-7);
}

TEST(Ptx, Reciprocal) {
  const std::vector<float> y =
      results<float, float>("reciprocal_approx", {4.0F, -0.25F, 3.0F, kInfinity, 0x1p100F});
  EXPECT_FLOAT_EQ(y[0], 0.25F);
  EXPECT_FLOAT_EQ(y[1], -4.0F);
  EXPECT_NEAR(y[2], 1.0 / 3.0, 1e-7);
  EXPECT_EQ(y[3], 0.0F);
  EXPECT_FLOAT_EQ(y[4], 0x1p-100F);
}

TEST(Ptx, ConversionsRoundToNearestEven) {
  // Halfway between 1 and the next, and between that and the one after.
  EXPECT_EQ((results<uint16_t, float>("to_bf16", {0x1.01p0F, 0x1.03p0F, kInfinity, -0.0F})),
            (std::vector<uint16_t>{0x3f80, 0x3f82, 0x7f80, 0x8000}));
  EXPECT_EQ((results<uint16_t, float>("to_f16", {0x1.002p0F, 0x1.006p0F, 1e6F, 0x1p-24F})),
            (std::vector<uint16_t>{0x3c00, 0x3c02, 0x7c00, 0x0001}));
  EXPECT_EQ((results<float, uint16_t>("from_f16", {0x3c00, 0x0001, 0xfc00})),
            (std::vector<float>{1.0F, 0x1p-24F, -kInfinity}));
}

}  // namespace
}  // namespace quire::test::fibers
