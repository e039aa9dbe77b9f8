#include "kernels/matmul.h"

#include <algorithm>
#include <sys/mman.h>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/elementwise.h"
#include "kernels/quantize.h"
#include "tensor/buffer.h"
#include "tests/kernels/support.h"

namespace quire::test {
namespace {

constexpr DType kFloatTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr WeightFormat kFloatFormats[] = {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16};
constexpr WeightFormat kIntegerFormats[] = {WeightFormat::kInt8, WeightFormat::kInt4};
constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16,
                                     WeightFormat::kInt8, WeightFormat::kInt4};

DType dtype_of(WeightFormat format) {
  if (format == WeightFormat::kBF16) return DType::kBF16;
  return format == WeightFormat::kF16 ? DType::kF16 : DType::kF32;
}

class Matmul : public PerLevel {};

/// One weight matrix with everything to multiply it by.
struct Problem {
  Problem(kernels::KernelContext& context, size_t n_in, size_t k_in, WeightFormat format_in)
      : Problem(context, n_in, k_in, format_in, random_floats(n_in * 1000 + k_in, n_in * k_in)) {}
  Problem(kernels::KernelContext& context, size_t n_in, size_t k_in, WeightFormat format_in,
          std::vector<float> values_in)
      : n(n_in),
        k(k_in),
        format(format_in),
        values(std::move(values_in)),
        tensor(values, dtype_of(format), {static_cast<int64_t>(n), static_cast<int64_t>(k)}),
        weights(context, tensor.view, format),
        bias(random_floats(7, n)) {}

  std::vector<float> run(kernels::KernelContext& context, const float* x, size_t m,
                         bool with_bias = true) const {
    std::vector<float> y(m * n);
    kernels::matmul(context, weights, x, k, m, y.data(), n, with_bias ? bias.data() : nullptr);
    return y;
  }

  size_t n;
  size_t k;
  WeightFormat format;
  std::vector<float> values;
  OwnedTensor tensor;
  kernels::PackedMatrix weights;
  std::vector<float> bias;
};

/// Recursive summation in f32 errs by at most (k + 1) 2^-24 of the sum of magnitudes (Higham 2002, 4.2);
/// the weights and activations are taken as they are stored.
void expect_close_to_double(const Problem& problem, const std::vector<float>& x, size_t m,
                            const std::vector<float>& y, bool with_bias) {
  const DType dtype = dtype_of(problem.format);
  const DType activations = dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
  for (size_t row = 0; row < m; ++row) {
    for (size_t i = 0; i < problem.n; ++i) {
      double sum = with_bias ? problem.bias[i] : 0.0;
      double magnitude = std::abs(sum);
      for (size_t k = 0; k < problem.k; ++k) {
        const double product = static_cast<double>(stored(x[row * problem.k + k], activations)) *
                               stored(problem.values[i * problem.k + k], dtype);
        sum += product;
        magnitude += std::abs(product);
      }
      const double bound = static_cast<double>(problem.k + 2) * 0x1.0p-24 * magnitude;
      ASSERT_NEAR(y[row * problem.n + i], sum, bound)
          << weight_format_name(problem.format) << " m " << row << " of " << m << ", n " << i << " of "
          << problem.n << ", k " << problem.k;
    }
  }
}

TEST_P(Matmul, IsNearTheExactResult) {
  for (const WeightFormat format : kFloatFormats) {
    for (const size_t n : {1, 15, 31, 32, 33, 64, 100}) {
      for (const size_t k : {1, 2, 7, 32, 101}) {
        const Problem problem(context_, n, k, format);
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

TEST_P(Matmul, IsNearTheExactResultWhereKIsCutIntoChunks) {
  for (const WeightFormat format : kFloatFormats) {
    const Problem problem(context_, 70, 9001, format);
    const std::vector<float> x = random_floats(3, 30 * problem.k);
    expect_close_to_double(problem, x, 30, problem.run(context_, x.data(), 30), true);
  }
}

TEST_P(Matmul, ARowDoesNotDependOnTheBatchOrTheThreads) {
  constexpr size_t kRows = 67;
  ThreadPool one(1);
  ThreadPool four(4);
  for (const WeightFormat format : kFormats) {
    // The last ones are cut into chunks of K.
    for (const auto& [n, k] : {std::pair<size_t, size_t>{32, 64},
                               {33, 7},
                               {95, 65},
                               {200, 128},
                               {1, 300},
                               {64, 1024},
                               {100, 4101},
                               {320, 8192},
                               {33, 8260}}) {
      const bool large = n * k > 100000;
      if (large && GetParam() == kernels::IsaLevel::kReference) continue;  // it cuts nothing into chunks
      const Problem problem(context_, n, k, format);
      const std::vector<float> x = random_floats(n + k, kRows * k);
      std::vector<float> alone;
      kernels::KernelContext single{GetParam(), one};
      for (size_t row = 0; row < kRows; ++row) {
        const std::vector<float> y = problem.run(single, x.data() + row * k, 1);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (size_t m = 1; m <= kRows; m += large ? 22 : 1) {
        for (ThreadPool* pool : {&one, &pool_, &four}) {
          kernels::KernelContext context{GetParam(), *pool};
          const std::vector<float> y = problem.run(context, x.data(), m);
          ASSERT_TRUE(same_bits(y.data(), alone.data(), y.size()))
              << weight_format_name(format) << " n " << n << " k " << k << " m " << m << ", threads "
              << pool->num_threads();
        }
      }
    }
  }
}

TEST_P(Matmul, ARowDoesNotDependOnTheOthersWhereThereAreTooManyForTheCache) {
  if (GetParam() == kernels::IsaLevel::kReference) return;  // it takes one row after the other
  constexpr size_t kRows = 400;
  for (const WeightFormat format : kFormats) {
    const Problem problem(context_, 40, 8192, format);
    const std::vector<float> x = random_floats(11, kRows * problem.k);
    const std::vector<float> y = problem.run(context_, x.data(), kRows);
    for (size_t row = 0; row < kRows; row += 19) {
      const std::vector<float> alone = problem.run(context_, x.data() + row * problem.k, 1);
      ASSERT_TRUE(same_bits(y.data() + row * problem.n, alone.data(), problem.n))
          << weight_format_name(format) << " row " << row;
    }
  }
}

/// What an integer matmul should give, from the quantizers alone.
std::vector<float> integer_product(const Problem& problem, const std::vector<float>& x, size_t m) {
  const size_t k = problem.k;
  std::vector<float> y(m * problem.n);
  std::vector<int8_t> row(k);
  std::vector<int8_t> weights(k);
  std::vector<int8_t> groups((k + kernels::kInt4Group - 1) / kernels::kInt4Group);
  for (size_t i = 0; i < problem.n; ++i) {
    const float* from = problem.values.data() + i * k;
    const bool four = problem.format == WeightFormat::kInt4;
    const float w_scale = four ? kernels::quantize_int4(from, k, weights.data(), groups.data())
                               : kernels::quantize_int8(from, weights.data(), k);
    for (size_t at = 0; at < m; ++at) {
      const float x_scale = kernels::quantize_int8(x.data() + at * k, row.data(), k);
      int32_t sum = 0;
      for (size_t j = 0; j < k; ++j)
        sum += row[j] * weights[j] * (four ? groups[j / kernels::kInt4Group] : 1);
      y[at * problem.n + i] = static_cast<float>(sum) * x_scale * w_scale + problem.bias[i];
    }
  }
  return y;
}

TEST_P(Matmul, OfIntegersIsExact) {
  for (const WeightFormat format : kIntegerFormats) {
    for (const size_t n : {1, 15, 33, 64, 100}) {
      for (const size_t k : {1, 31, 64, 101, 700}) {
        const Problem problem(context_, n, k, format);
        for (const size_t m : {1, 2, 5, 13, 16, 17, 33}) {
          const std::vector<float> x = random_floats(m, m * k, 3.0F);
          const std::vector<float> y = problem.run(context_, x.data(), m);
          const std::vector<float> expected = integer_product(problem, x, m);
          ASSERT_TRUE(same_bits(y.data(), expected.data(), y.size()))
              << weight_format_name(format) << " m " << m << ", n " << n << ", k " << k;
        }
      }
    }
  }
}

/// All weights of an output, and all numbers of a row, are the largest of one sign: -8 and 127 where they are
/// int4 and int8.
TEST_P(Matmul, OfTheLargestIntegersIsExact) {
  constexpr size_t kN = 40;
  constexpr size_t kK = 2048;
  constexpr size_t kM = 7;
  std::vector<float> weights(kN * kK);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = i / kK % 2 == 0 ? 1.0F : -1.0F;
  std::vector<float> x(kM * kK);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i / kK % 2 == 0 ? 1.0F : -1.0F;
  for (const WeightFormat format : kIntegerFormats) {
    const Problem problem(context_, kN, kK, format, weights);
    const std::vector<float> y = problem.run(context_, x.data(), kM);
    const std::vector<float> expected = integer_product(problem, x, kM);
    EXPECT_TRUE(same_bits(y.data(), expected.data(), y.size())) << weight_format_name(format);
  }
}

TEST_P(Matmul, IntegersAreCloseToTheWeights) {
  constexpr size_t kN = 50;
  constexpr size_t kK = 512;
  constexpr size_t kM = 20;
  for (const WeightFormat format : kIntegerFormats) {
    const Problem problem(context_, kN, kK, format);
    const std::vector<float> x = random_floats(1, kM * kK);
    const std::vector<float> y = problem.run(context_, x.data(), kM, false);
    double error = 0.0;
    double size = 0.0;
    for (size_t row = 0; row < kM; ++row) {
      for (size_t i = 0; i < kN; ++i) {
        double sum = 0.0;
        for (size_t k = 0; k < kK; ++k) sum += double{x[row * kK + k]} * problem.values[i * kK + k];
        error += (y[row * kN + i] - sum) * (y[row * kN + i] - sum);
        size += sum * sum;
      }
    }
    EXPECT_LT(std::sqrt(error / size), format == WeightFormat::kInt8 ? 0.008 : 0.08);
    EXPECT_GT(std::sqrt(error / size), 0.0001);
  }
}

TEST_P(Matmul, OfWhatIsNotFiniteIsNotFinite) {
  for (const WeightFormat format : kFormats) {
    const Problem problem(context_, 40, 100, format);
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      for (const size_t place : {0, 50, 99}) {
        std::vector<float> x = random_floats(3, 300);
        const std::vector<float> good = problem.run(context_, x.data(), 3);
        x[100 + place] = bad;
        const std::vector<float> y = problem.run(context_, x.data(), 3);
        for (size_t i = 0; i < 40; ++i) {
          ASSERT_FALSE(std::isfinite(y[40 + i]))
              << weight_format_name(format) << " " << bad << " at " << place;
          ASSERT_EQ(y[i], good[i]);
          ASSERT_EQ(y[80 + i], good[80 + i]);
        }
      }
    }
  }
}

TEST_P(Matmul, ManyRowsOfALongKAreAsEachAlone) {
  if (GetParam() == kernels::IsaLevel::kReference) return;  // its loops know no blocks, and are slow
  ThreadPool one(1);
  kernels::KernelContext single{GetParam(), one};
  struct Case {
    WeightFormat format;
    size_t rows;
    size_t n;
    size_t k;
  };
  // What tiles cut: a panel, where there are two pairs of them; rows; K; both; K of more panels than wait at
  // once.
  for (const Case& at : {Case{WeightFormat::kInt8, 64, 72, 4224},
                         {WeightFormat::kBF16, 50, 72, 2112},
                         {WeightFormat::kBF16, 300, 72, 2048},
                         {WeightFormat::kInt4, 300, 72, 4096},
                         {WeightFormat::kBF16, 300, 72, 4224},
                         {WeightFormat::kInt8, 300, 72, 4224},
                         {WeightFormat::kInt8, 530, 72, 4224},
                         {WeightFormat::kInt4, 530, 40, 4224},
                         {WeightFormat::kInt8, 33, 1064, 33024}}) {
    const Problem problem(context_, at.n, at.k, at.format);
    const std::vector<float> x = random_floats(1, at.rows * at.k);
    const std::vector<float> y = problem.run(single, x.data(), at.rows);
    EXPECT_TRUE(same_bits(y.data(), problem.run(context_, x.data(), at.rows).data(), y.size()));
    for (const size_t row : {0, 1, 15, 16, 31, 32, 159, 160, 255, 256, 287, 288, 299, 511, 512, 529}) {
      if (row >= at.rows) continue;
      const std::vector<float> alone = problem.run(context_, x.data() + row * at.k, 1);
      ASSERT_TRUE(same_bits(y.data() + row * at.n, alone.data(), at.n))
          << weight_format_name(at.format) << " k " << at.k << " row " << row;
    }
  }
}

TEST_P(Matmul, ResultsThatLeaveTheCacheAreThoseOfOneRow) {
  if (GetParam() == kernels::IsaLevel::kReference) return;  // it writes all in one way
  constexpr size_t kMostRows = 71;
  constexpr size_t kStride = 16016;  // whole vectors: what is aligned in one row is in all
  constexpr size_t kN = kStride - 10;
  for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kInt8, WeightFormat::kInt4}) {
    const Problem problem(context_, kN, 544, format);
    const std::vector<float> x = random_floats(1, kMostRows * problem.k);
    for (const auto& [rows, shift] :
         {std::pair<size_t, size_t>{kMostRows, 0}, {kMostRows, 1}, {20, 0}, {16, 0}, {16, 1}}) {
      Buffer results((rows * kStride + shift) * sizeof(float));
      float* y = results.as<float>() + shift;
      std::fill_n(y, rows * kStride, -77.0F);
      kernels::matmul(context_, problem.weights, x.data(), problem.k, rows, y, kStride, problem.bias.data());
      for (const size_t row : {0, 1, 15, 16, 31, 32, 63, 64, 70}) {
        if (row >= rows) continue;
        const std::vector<float> alone = problem.run(context_, x.data() + row * problem.k, 1);
        ASSERT_TRUE(same_bits(y + row * kStride, alone.data(), kN))
            << weight_format_name(format) << " row " << row << " of " << rows << " shift " << shift;
        for (size_t i = kN; i < kStride; ++i) ASSERT_EQ(y[row * kStride + i], -77.0F);
      }
    }
  }
}

TEST_P(Matmul, ReadsNothingBehindTheWeights) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const WeightFormat format : kFormats) {
    for (const size_t n : {32, 64, 96}) {
      for (const size_t k : {64, 1024}) {
        const Problem problem(context_, n, k, format);
        const size_t bytes = problem.weights.num_bytes();
        const size_t pages = (bytes + page - 1) / page * page;
        void* mapped =
            mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(mapped, MAP_FAILED);
        auto* begin = static_cast<std::byte*>(mapped) + pages - bytes;
        std::copy_n(problem.weights.data(), bytes, begin);
        ASSERT_EQ(mprotect(static_cast<std::byte*>(mapped) + pages, page, PROT_NONE), 0);
        const kernels::PackedMatrix at_the_end(n, k, format, begin, true);
        for (const size_t m : {1, 9, 16, 17, 40, 70}) {
          const std::vector<float> x = random_floats(m, m * k);
          std::vector<float> y(m * n);
          kernels::matmul(context_, at_the_end, x.data(), k, m, y.data(), n, problem.bias.data());
          const std::vector<float> expected = problem.run(context_, x.data(), m);
          ASSERT_TRUE(same_bits(y.data(), expected.data(), y.size()))
              << weight_format_name(format) << " n " << n << " k " << k << " m " << m;
        }
        munmap(mapped, pages + page);
      }
    }
  }
}

TEST_P(Matmul, OfGatedRowsIsThatOfRowsThatWereGatedBefore) {
  for (const WeightFormat format : kFormats) {
    for (const size_t k : {7, 300, 1000}) {  // parts of a part, and more than one
      const Problem problem(context_, 40, k, format);
      for (const size_t m : {1, 3, 40}) {
        const std::vector<float> gate_up = random_floats(m, m * 2 * k);
        std::vector<float> x(m * k);
        for (const kernels::Gate gate : {kernels::Gate::kSilu, kernels::Gate::kGeluTanh}) {
          const auto gated = gate == kernels::Gate::kSilu ? kernels::swiglu : kernels::geglu;
          gated(context_, gate_up.data(), x.data(), m, k);
          std::vector<float> y(m * problem.n);
          kernels::matmul_gated(context_, problem.weights, gate, gate_up.data(), m, y.data(), problem.n,
                                problem.bias.data());
          const std::vector<float> expected = problem.run(context_, x.data(), m);
          ASSERT_TRUE(same_bits(y.data(), expected.data(), y.size()))
              << weight_format_name(format) << " k " << k << " m " << m;
        }
      }
    }
  }
}

TEST_P(Matmul, TakesAsMuchScratchMemoryAsItSays) {
  for (const WeightFormat format : kFormats) {
    const Problem problem(context_, 70, 256, format);
    for (const size_t m : {1, 2, 6, 8, 9, 16, 33, 70}) {
      const std::vector<float> x = random_floats(1, m * problem.k);
      kernels::KernelContext context{context_.isa, context_.pool};
      context.scratch.reserve(kernels::matmul_scratch_bytes(context, problem.weights, m));
      const size_t reserved = context.scratch.size();
      problem.run(context, x.data(), m);
      const std::vector<float> gate_up = random_floats(1, m * 2 * problem.k);
      std::vector<float> y(m * problem.n);
      kernels::matmul_gated(context, problem.weights, kernels::Gate::kSilu, gate_up.data(), m, y.data(),
                            problem.n);
      EXPECT_EQ(context.scratch.size(), reserved) << weight_format_name(format) << ", " << m << " rows";
    }
  }
}

TEST_P(Matmul, KeepsToItsStridesAndColumns) {
  for (const WeightFormat format : kFormats) {
    for (const size_t n : {20, 32, 50}) {
      constexpr size_t kRows = 9;
      const Problem problem(context_, n, 33, format);
      const size_t ldx = problem.k + 5;
      const size_t ldy = n + 3;
      const std::vector<float> dense = random_floats(1, kRows * problem.k);
      std::vector<float> x(kRows * ldx, NAN);
      for (size_t row = 0; row < kRows; ++row) {
        std::copy_n(dense.data() + row * problem.k, problem.k, x.data() + row * ldx);
      }
      std::vector<float> y(kRows * ldy, -77.0F);
      kernels::matmul(context_, problem.weights, x.data(), ldx, kRows, y.data(), ldy, problem.bias.data());
      const std::vector<float> expected = problem.run(context_, dense.data(), kRows);
      for (size_t row = 0; row < kRows; ++row) {
        ASSERT_TRUE(same_bits(y.data() + row * ldy, expected.data() + row * n, n));
        for (size_t i = n; i < ldy; ++i) ASSERT_EQ(y[row * ldy + i], -77.0F);
      }
    }
  }
}

TEST_P(Matmul, OfNoInputsIsTheBias) {
  const float none = 0.0F;
  for (const WeightFormat format : kFormats) {
    const Problem problem(context_, 40, 0, format);
    // What a matmul leaves behind in the scratch memory must not show.
    const std::vector<float> infinite(40 * 64, INFINITY);
    for (const size_t m : {1, 2, 40}) {
      Problem(context_, 1, 64, format).run(context_, infinite.data(), m);
      const std::vector<float> y = problem.run(context_, &none, m);
      for (size_t row = 0; row < m; ++row) {
        EXPECT_TRUE(same_bits(y.data() + row * problem.n, problem.bias.data(), problem.n));
      }
    }
  }
}

TEST_P(Matmul, PacksAnyFloatTypeIntoAny) {
  constexpr size_t kN = 37;
  constexpr size_t kK = 301;
  const std::vector<float> values = random_floats(5, kN * kK);
  for (const DType from : kFloatTypes) {
    const OwnedTensor tensor(values, from, {kN, kK});
    for (const WeightFormat format : kFloatFormats) {
      const DType compute = dtype_of(format);
      const kernels::PackedMatrix packed(context_, tensor.view, format);
      const size_t pack = compute == DType::kBF16 ? 2 : 1;
      const size_t padded = compute == DType::kBF16 ? (kK + 31) / 32 * 32 : kK;
      ASSERT_EQ(packed.num_bytes(), 64 * padded * dtype_bytes(compute));
      for (size_t n = 0; n < 64; ++n) {
        for (size_t k = 0; k < padded; ++k) {
          const size_t panel = n / 32 * 32 * padded;
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
  EXPECT_THROW(kernels::PackedMatrix(context_, cube, WeightFormat::kF32), Error);
  const TensorView integers{DType::kI32, {2, 4}, reinterpret_cast<const std::byte*>(values.data())};
  EXPECT_THROW(kernels::PackedMatrix(context_, integers, WeightFormat::kF32), Error);
}

QUIRE_FOR_ALL_LEVELS(Matmul);

}  // namespace
}  // namespace quire::test
