// Which algorithms matrix products take, of those that the fake cuBLASLt offers.
#include "backend/cuda/gemm.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/device_on_host/fake_cublaslt.h"
#include "tests/device_on_host/support.h"

namespace quire::test::fibers {
namespace {

using backend::cuda::DeviceBuffer;
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

struct Shape {
  DType dtype;
  DType out;
  bool bias;
};

/// For some hundreds of rows, with two matrices that hold anything.
void prepare(Device& device, Gemm& gemm, const Shape& shape) {
  DeviceArray<uint32_t> weights(device, "weights", std::vector<uint32_t>(size_t{2} * kN * kK, 0));
  // Of 1.0 in bf16, beside which the rounding of sums does not show.
  DeviceArray<uint32_t> bias(device, "bias", std::vector<uint32_t>(kN, 0x3f803f80));
  const void* const matrices[] = {weights.data(), weights.data() + kN * kK};
  gemm.prepare({shape.dtype, shape.out, kN, kK, shape.bias}, matrices, shape.bias ? bias.data() : nullptr,
               300);
}

TEST(Gemm, APreparedShapeTakesOnlyAlgorithmsWithTheBitsOfTheFirst) {
  Device device(1);
  Gemm gemm(cublaslt(), nullptr);
  const std::vector<float> alone = first_of(device, gemm, 1);
  const Offering many(Offers::kMany);
  prepare(device, gemm, {DType::kF32, DType::kF32, false});
  const uint64_t before = products_in_parts();
  for (const uint32_t rows : {1U, 64U, 130U, 300U, 400U}) {
    EXPECT_EQ(first_of(device, gemm, rows), alone) << rows;
  }
  EXPECT_EQ(products_in_parts(), before);
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

TEST(Gemm, IsPreparedForEachTypeAndForBiases) {
  Device device(1);
  Gemm gemm(cublaslt(), nullptr);
  const Offering many(Offers::kMany);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType out : {dtype, DType::kF32}) {
      for (const bool bias : {false, true}) {
        const uint64_t before = products_in_parts();
        prepare(device, gemm, {dtype, out, bias});
        EXPECT_GT(products_in_parts(), before) << "what divides K was not even tried";
      }
    }
  }
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

TEST(Gemm, SaysForHowManyRowsNoAlgorithmHasTheSameBits) {
  Device device(1);
  Gemm gemm(cublaslt(), nullptr);
  const Offering few(Offers::kOneSumForFewRows);
  for (const bool bias : {false, true}) {
    try {
      prepare(device, gemm, {DType::kBF16, DType::kBF16, bias});
      ADD_FAILURE() << "something multiplies more than 64 rows";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "CUDA: of cuBLASLt's algorithms for bf16 weights [20, 512] none gives 128 rows the bits "
                   "that it gives "
                   "64 (--fast-gemm does without)");
    }
  }
}

/// Products of one to nine rows, of which few_rows() may take up to eight, by a shape prepared while this is
/// offered.
class PreparedForFewRows {
 public:
  static constexpr uint32_t kColumns = 32;
  static constexpr uint32_t kMostRows = 9;

  PreparedForFewRows(Device& device, Gemm& gemm, DType dtype, Offers offers) : gemm_(gemm), dtype_(dtype) {
    const Offering late(offers);
    Elements weights(device, "weights", stored_floats(2, kColumns * kK, dtype), dtype);
    const void* const matrices[] = {weights.data()};
    gemm.prepare({dtype, DType::kF32, kColumns, kK, false}, matrices, nullptr, 64);
  }

  bool takes_few_rows(uint32_t rows) const {
    return gemm_.takes_few_rows({dtype_, DType::kF32, kColumns, kK, false}, rows);
  }

  /// The first row of so many.
  std::vector<float> first_of(Device& device, uint32_t rows) {
    const uint32_t padded = backend::cuda::padded_rows(rows);
    Elements x(device, "x", stored_floats(1, padded * kK, dtype_), dtype_);
    Elements weights(device, "weights", stored_floats(2, kColumns * kK, dtype_), dtype_);
    DeviceArray<float> y(device, "y", padded * kColumns);
    gemm_.multiply({.dtype = dtype_,
                    .out_dtype = DType::kF32,
                    .x = x.data(),
                    .weights = weights.data(),
                    .bias = nullptr,
                    .y = y.data(),
                    .rows = rows,
                    .n = kColumns,
                    .k = kK});
    return {y.values().begin(), y.values().begin() + kColumns};
  }

 private:
  Gemm& gemm_;
  DType dtype_;
};

TEST(Gemm, FewRowsAreMultipliedByTheOwnKernelWhereThatIsFasterAndHasTheSameBits) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Device device(1);
    Gemm gemm(cublaslt(), nullptr);
    PreparedForFewRows prepared(device, gemm, dtype, Offers::kLate);
    const uint64_t before = products();
    const std::vector<float> alone = prepared.first_of(device, 1);
    EXPECT_EQ(prepared.first_of(device, 8), alone);
    EXPECT_EQ(products(), before) << "cuBLASLt multiplied few rows";
    for (const uint32_t rows : {1U, 8U, 9U}) EXPECT_EQ(prepared.takes_few_rows(rows), rows <= 8) << rows;
    EXPECT_EQ(prepared.first_of(device, 9), alone);
    EXPECT_EQ(products(), before + 1);
    EXPECT_TRUE(device.findings().empty()) << device.report();
  }
}

TEST(Gemm, FastestTakesTheOwnKernelForFewRowsWhereThatIsFaster) {
  Device device(1);
  Gemm gemm(cublaslt(), nullptr, GemmChoice::kFastest);
  PreparedForFewRows prepared(device, gemm, DType::kBF16, Offers::kLateBackwards);
  const uint64_t before = products();
  for (const uint32_t rows : {1U, 8U, 9U}) {
    prepared.first_of(device, rows);
    EXPECT_EQ(prepared.takes_few_rows(rows), rows <= 8) << rows;
    EXPECT_EQ(products(), before + (rows <= 8 ? 0 : 1));
  }
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

TEST(Gemm, FewRowsAreNotMultipliedByTheOwnKernelWhereCublasLtSumsInAnotherOrder) {
  Device device(1);
  Gemm gemm(cublaslt(), nullptr);
  PreparedForFewRows prepared(device, gemm, DType::kBF16, Offers::kLateBackwards);
  const uint64_t before = products();
  prepared.first_of(device, 1);
  EXPECT_EQ(products(), before + 1);
  EXPECT_FALSE(prepared.takes_few_rows(1));
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

/// A GiB of the device is free.
TEST(Gemm, IsNotPreparedWhereThatTakesTooMuchMemory) {
  Device device(1);
  Gemm gemm(cublaslt(), nullptr);
  const Offering many(Offers::kMany);
  const void* const nowhere[] = {nullptr};
  EXPECT_FALSE(gemm.prepare({DType::kF32, DType::kF32, 1 << 20, 1024, false}, nowhere, nullptr, 64));
  EXPECT_EQ(device.bytes_allocated(), backend::cuda::kGemmWorkspace);
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
