// Which algorithms matrix products take, of those that the fake cuBLASLt offers.
#include "backend/cuda/gemm.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/device_on_host/fake_cublaslt.h"
#include "tests/device_on_host/support.h"

namespace quire::test::fibers {
namespace {

using backend::cuda::Gemm;
using backend::cuda::GemmChoice;

constexpr uint32_t kN = 20;
constexpr uint32_t kK = 512;

/// The first row of so many, which are all different.
std::vector<float> first_of(Device& device, Gemm& gemm, uint32_t rows) {
  const uint32_t padded = backend::cuda::padded_rows(rows);
  DeviceArray<float> x(device, "x", std::span<const float>(stored_floats(1, padded * kK, DType::kF32)));
  DeviceArray<float> weights(device, "weights",
                             std::span<const float>(stored_floats(2, kN * kK, DType::kF32)));
  DeviceArray<float> y(device, "y", padded * kN);
  gemm.multiply({.dtype = DType::kF32,
                 .out_dtype = DType::kF32,
                 .x = x.data(),
                 .weights = weights.data(),
                 .bias = nullptr,
                 .y = y.data(),
                 .rows = rows,
                 .n = kN,
                 .k = kK});
  return {y.values().begin(), y.values().begin() + kN};
}

TEST(Gemm, ARowHasTheSameBitsAmongAnyNumber) {
  Device device(1);
  Gemm gemm(cublaslt(), nullptr);
  const uint64_t before = products_in_parts();
  const std::vector<float> alone = first_of(device, gemm, 1);
  for (const uint32_t rows : {3U, 64U, 130U}) EXPECT_EQ(first_of(device, gemm, rows), alone) << rows;
  EXPECT_EQ(products_in_parts(), before);
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

/// What the fake offers first splits K into as many parts as the rows make.
TEST(Gemm, FastestTakesWhatIsOfferedForSoManyRows) {
  Device device(1);
  Gemm gemm(cublaslt(), nullptr);
  Gemm fastest(cublaslt(), nullptr, GemmChoice::kFastest);
  const std::vector<float> expected = first_of(device, gemm, 1);
  const uint64_t before = products_in_parts();
  for (const uint32_t rows : {1U, 130U}) {
    const std::vector<float> found = first_of(device, fastest, rows);
    for (uint32_t i = 0; i < kN; ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << rows;
    EXPECT_EQ(found == expected, rows == 1) << rows;
  }
  EXPECT_EQ(products_in_parts(), before + 2);
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

}  // namespace
}  // namespace quire::test::fibers
