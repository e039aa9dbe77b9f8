#include "kernels/matmul.h"

#include <tuple>

#include "base/error.h"
#include "tests/kernels/support.h"

namespace quire::test {
namespace {

constexpr DType kComputeTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

class Matmul : public PerLevel {};

/// One weight matrix with everything to multiply it by.
struct Problem {
  Problem(KernelContext& context, size_t n_in, size_t k_in, DType dtype_in)
      : n(n_in),
        k(k_in),
        dtype(dtype_in),
        values(random_floats(n * 1000 + k, n * k)),
        tensor(values, dtype, {static_cast<int64_t>(n), static_cast<int64_t>(k)}),
        weights(context, tensor.view, dtype),
        bias(random_floats(7, n)) {}

  std::vector<float> run(KernelContext& context, const float* x, size_t m, bool with_bias = true) const {
    std::vector<float> y(m * n);
    matmul(context, weights, x, k, m, y.data(), n, with_bias ? bias.data() : nullptr);
    return y;
  }

  size_t n;
  size_t k;
  DType dtype;
  std::vector<float> values;
  OwnedTensor tensor;
  PackedMatrix weights;
  std::vector<float> bias;
};

/// Recursive summation in f32 errs by at most (k + 1) 2^-24 of the sum of magnitudes (Higham 2002, 4.2);
/// the weights and activations are taken as they are stored.
void expect_close_to_double(const Problem& problem, const std::vector<float>& x, size_t m,
                            const std::vector<float>& y, bool with_bias) {
  const DType activations = problem.dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
  for (size_t row = 0; row < m; ++row) {
    for (size_t i = 0; i < problem.n; ++i) {
      double sum = with_bias ? problem.bias[i] : 0.0;
      double magnitude = std::abs(sum);
      for (size_t k = 0; k < problem.k; ++k) {
        const double product = static_cast<double>(stored(x[row * problem.k + k], activations)) *
                               stored(problem.values[i * problem.k + k], problem.dtype);
        sum += product;
        magnitude += std::abs(product);
      }
      const double bound = static_cast<double>(problem.k + 2) * 0x1.0p-24 * magnitude;
      ASSERT_NEAR(y[row * problem.n + i], sum, bound)
          << dtype_name(problem.dtype) << " m " << row << " of " << m << ", n " << i << " of " << problem.n
          << ", k " << problem.k;
    }
  }
}

TEST_P(Matmul, IsCloseToDouble) {
  for (const DType dtype : kComputeTypes) {
    for (const size_t n : {1, 15, 31, 32, 33, 64, 100}) {
      for (const size_t k : {1, 2, 7, 32, 101}) {
        const Problem problem(context_, n, k, dtype);
        for (const size_t m : {1, 2, 5, 13, 31}) {
          const std::vector<float> x = random_floats(m, m * k);
          for (const bool with_bias : {false, true}) {
            expect_close_to_double(problem, x, m, problem.run(context_, x.data(), m, with_bias), with_bias);
          }
        }
      }
    }
  }
}

TEST_P(Matmul, IsCloseToDoubleWhereKIsCutIntoChunks) {
  for (const DType dtype : kComputeTypes) {
    const Problem problem(context_, 70, 9001, dtype);
    const std::vector<float> x = random_floats(3, 30 * problem.k);
    expect_close_to_double(problem, x, 30, problem.run(context_, x.data(), 30), true);
  }
}

TEST_P(Matmul, ARowDoesNotDependOnTheBatchOrTheThreads) {
  constexpr size_t kRows = 67;
  ThreadPool one(1);
  ThreadPool four(4);
  for (const DType dtype : kComputeTypes) {
    // The last two are cut into chunks of K; rows of 1024 and 8192 floats are copied to another stride.
    for (const auto& [n, k] : {std::pair<size_t, size_t>{32, 64},
                               {33, 7},
                               {95, 65},
                               {200, 128},
                               {1, 300},
                               {64, 1024},
                               {100, 4101},
                               {320, 8192}}) {
      const bool large = n * k > 100000;
      if (large && GetParam() == IsaLevel::kReference) continue;  // it cuts nothing into chunks
      const Problem problem(context_, n, k, dtype);
      const std::vector<float> x = random_floats(n + k, kRows * k);
      std::vector<float> alone;
      KernelContext single{GetParam(), one};
      for (size_t row = 0; row < kRows; ++row) {
        const std::vector<float> y = problem.run(single, x.data() + row * k, 1);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (size_t m = 1; m <= kRows; m += large ? 22 : 1) {
        for (ThreadPool* pool : {&one, &pool_, &four}) {
          KernelContext context{GetParam(), *pool};
          const std::vector<float> y = problem.run(context, x.data(), m);
          ASSERT_TRUE(same_bits(y.data(), alone.data(), y.size()))
              << dtype_name(dtype) << " n " << n << " k " << k << " m " << m << ", threads "
              << pool->num_threads();
        }
      }
    }
  }
}

TEST_P(Matmul, KeepsToItsStridesAndColumns) {
  for (const DType dtype : kComputeTypes) {
    for (const size_t n : {20, 32, 50}) {
      constexpr size_t kRows = 9;
      const Problem problem(context_, n, 33, dtype);
      const size_t ldx = problem.k + 5;
      const size_t ldy = n + 3;
      const std::vector<float> dense = random_floats(1, kRows * problem.k);
      std::vector<float> x(kRows * ldx, NAN);
      for (size_t row = 0; row < kRows; ++row) {
        std::copy_n(dense.data() + row * problem.k, problem.k, x.data() + row * ldx);
      }
      std::vector<float> y(kRows * ldy, -77.0F);
      matmul(context_, problem.weights, x.data(), ldx, kRows, y.data(), ldy, problem.bias.data());
      const std::vector<float> expected = problem.run(context_, dense.data(), kRows);
      for (size_t row = 0; row < kRows; ++row) {
        ASSERT_TRUE(same_bits(y.data() + row * ldy, expected.data() + row * n, n));
        for (size_t i = n; i < ldy; ++i) ASSERT_EQ(y[row * ldy + i], -77.0F);
      }
    }
  }
}

TEST_P(Matmul, OfNoInputsIsTheBias) {
  const Problem problem(context_, 40, 0, DType::kBF16);
  const float none = 0.0F;
  EXPECT_EQ(problem.run(context_, &none, 1), problem.bias);
}

TEST_P(Matmul, PacksAnyFloatTypeIntoAny) {
  constexpr size_t kN = 37;
  constexpr size_t kK = 301;
  const std::vector<float> values = random_floats(5, kN * kK);
  for (const DType from : kComputeTypes) {
    const OwnedTensor tensor(values, from, {kN, kK});
    for (const DType compute : kComputeTypes) {
      const PackedMatrix packed(context_, tensor.view, compute);
      const size_t pack = compute == DType::kBF16 ? 2 : 1;
      ASSERT_EQ(packed.num_bytes(), 64 * ((kK + pack - 1) / pack * pack) * dtype_bytes(compute));
      for (size_t n = 0; n < 64; ++n) {
        for (size_t k = 0; k < (kK + pack - 1) / pack * pack; ++k) {
          const size_t panel = n / 32 * 32 * ((kK + pack - 1) / pack * pack);
          const size_t index = panel + k / pack * 32 * pack + n % 32 * pack + k % pack;
          float found = 0.0F;
          if (compute == DType::kF32) {
            found = reinterpret_cast<const float*>(packed.data())[index];
          } else {
            const uint16_t bits = reinterpret_cast<const uint16_t*>(packed.data())[index];
            found = compute == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
          }
          const float expected = n < kN && k < kK ? stored(stored(values[n * kK + k], from), compute) : 0.0F;
          ASSERT_EQ(found, expected) << dtype_name(from) << " to " << dtype_name(compute) << " " << n << ", "
                                     << k;
        }
      }
    }
  }
}

TEST_P(Matmul, RefusesWhatIsNoMatrix) {
  const std::vector<float> values(8);
  const TensorView cube{DType::kF32, {2, 2, 2}, reinterpret_cast<const std::byte*>(values.data())};
  EXPECT_THROW(PackedMatrix(context_, cube, DType::kF32), Error);
  const TensorView integers{DType::kI32, {2, 4}, reinterpret_cast<const std::byte*>(values.data())};
  EXPECT_THROW(PackedMatrix(context_, integers, DType::kF32), Error);
}

QUIRE_FOR_ALL_LEVELS(Matmul);

}  // namespace
}  // namespace quire::test
