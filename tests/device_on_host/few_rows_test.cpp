#include "backend/cuda/few_rows.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/elementwise.h"
#include "backend/cuda/gated.h"
#include "backend/cuda/rope.h"
#include "backend/cuda/runtime.h"
#include "tests/device_on_host/support.h"

namespace quire::test::fibers {
namespace {

using backend::cuda::few_rows;
using backend::cuda::few_rows_multiplies;
using backend::cuda::kFewRows;

struct Shape {
  uint32_t rows;
  uint32_t n;
  uint32_t k;
  bool bias;
};

struct Operands {
  std::vector<float> x;
  std::vector<float> weights;
  std::vector<float> bias;
};

Operands operands(const Shape& shape, DType dtype) {
  const float scale = 4.0F / static_cast<float>(shape.k);  // sums stay about 1
  return {stored_floats(1, size_t{shape.rows} * shape.k, dtype, 2.0F),
          stored_floats(2, size_t{shape.n} * shape.k, dtype, scale), stored_floats(3, shape.n, dtype)};
}

std::vector<float> reference(const Operands& of, const Shape& shape) {
  std::vector<float> out;
  for (size_t row = 0; row < shape.rows; ++row) {
    for (size_t column = 0; column < shape.n; ++column) {
      double sum = shape.bias ? of.bias[column] : 0.0;
      for (size_t j = 0; j < shape.k; ++j) {
        sum += double{of.x[row * shape.k + j]} * of.weights[column * shape.k + j];
      }
      out.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

/// Rows `from` to `to` of x as few_rows() multiplies them.
std::vector<float> multiplied(Device& device, const Operands& of, const Shape& shape, DType dtype, DType out,
                              uint32_t from, uint32_t to) {
  const std::vector<float> rows(of.x.begin() + size_t{from} * shape.k, of.x.begin() + size_t{to} * shape.k);
  Elements x(device, "x", rows, dtype);
  Elements weights(device, "weights", of.weights, dtype);
  Elements bias(device, "bias", of.bias, dtype);
  Elements y(device, "y", size_t{to - from} * shape.n, out);
  EXPECT_EQ(few_rows({dtype, out, x.data(), weights.data(), shape.bias ? bias.data() : nullptr, y.data(),
                      to - from, shape.n, shape.k},
                     nullptr),
            0);
  std::vector<float> values;
  for (size_t i = 0; i < y.size(); ++i) values.push_back(y.at(i));
  return values;
}

class FewRows : public testing::TestWithParam<DType> {};

/// Fewer stages than the ring has, as many, and more: of either ring.
constexpr Shape kShapes[] = {{1, 16, 256, false},  {1, 48, 1792, true}, {2, 32, 1024, true},
                             {4, 16, 768, false},  {5, 16, 512, true},  {8, 32, 1280, false},
                             {1, 16, 4864, false}, {8, 16, 4096, true}};

TEST_P(FewRows, AreMultipliedAsTheReferenceDoes) {
  const DType dtype = GetParam();
  for (const Shape& shape : kShapes) {
    const Operands of = operands(shape, dtype);
    const std::vector<float> expected = reference(of, shape);
    for (const DType out : {dtype, DType::kF32}) {
      SCOPED_TRACE(testing::Message()
                   << shape.rows << " x " << shape.n << " x " << shape.k << " to " << dtype_name(out));
      std::vector<float> first;
      in_many_orders([&](Device& device) {
        const std::vector<float> found = multiplied(device, of, shape, dtype, out, 0, shape.rows);
        ASSERT_EQ(found.size(), expected.size());
        const double bound = out == DType::kF32 ? 1e-5 : 0.01;
        for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], bound) << i;
        if (first.empty()) first = found;
        ASSERT_EQ(found, first);
      });
    }
  }
}

/// One row of many columns has a shorter ring. In one order, since it has many blocks.
TEST_P(FewRows, ARowOfManyColumnsIsMultipliedInTheSameOrder) {
  const DType dtype = GetParam();
  const Shape two{2, 8192, 1024, true};
  const Operands of = operands(two, dtype);
  Device device(1);
  const std::vector<float> both = multiplied(device, of, two, dtype, DType::kF32, 0, 2);
  const std::vector<float> one = multiplied(device, of, two, dtype, DType::kF32, 0, 1);
  EXPECT_TRUE(std::ranges::equal(one, std::span(both).first(two.n)));
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

TEST_P(FewRows, ARowHasTheSameBitsAmongAnyNumber) {
  const DType dtype = GetParam();
  const Shape shape{kFewRows, 16, 768, true};
  const Operands of = operands(shape, dtype);
  Device device(1);
  const std::vector<float> all = multiplied(device, of, shape, dtype, DType::kF32, 0, kFewRows);
  for (uint32_t from = 0; from < kFewRows; ++from) {
    for (uint32_t to = from + 1; to <= kFewRows; ++to) {
      const std::vector<float> some = multiplied(device, of, shape, dtype, DType::kF32, from, to);
      EXPECT_TRUE(std::ranges::equal(some, std::span(all).subspan(size_t{from} * shape.n, some.size())))
          << from << " to " << to;
    }
  }
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

/// What gated() makes of the product that few_rows() stores, or few_rows() by itself.
std::vector<float> gated_product(Device& device, const Operands& of, const Shape& shape, DType dtype,
                                 model::Activation activation, bool in_one) {
  const uint32_t width = shape.n / 2;
  Elements x(device, "x", of.x, dtype);
  Elements weights(device, "weights", of.weights, dtype);
  Elements bias(device, "bias", of.bias, dtype);
  Elements product(device, "product", size_t{shape.rows} * shape.n, dtype);
  Elements y(device, "y", size_t{shape.rows} * width, dtype);
  backend::cuda::FewRowsArgs args{.dtype = dtype,
                                  .out_dtype = dtype,
                                  .x = x.data(),
                                  .weights = weights.data(),
                                  .bias = shape.bias ? bias.data() : nullptr,
                                  .y = in_one ? y.data() : product.data(),
                                  .rows = shape.rows,
                                  .n = shape.n,
                                  .k = shape.k};
  if (in_one) args.gates = activation;
  EXPECT_EQ(few_rows(args, nullptr), 0);
  if (!in_one) {
    EXPECT_EQ(backend::cuda::gated({dtype, activation, product.data(), y.data(), shape.rows, width}, nullptr),
              0);
  }
  std::vector<float> values;
  for (size_t i = 0; i < y.size(); ++i) values.push_back(y.at(i));
  return values;
}

TEST_P(FewRows, OfGatesAreWhatTwoKernelsGive) {
  const DType dtype = GetParam();
  for (const Shape& shape : {Shape{1, 48, 512, true}, {3, 32, 256, false}, {8, 64, 1280, true}}) {
    Operands of = operands(shape, dtype);
    for (float& value : of.x) value *= 4.0F;  // to where the activations bend
    for (const auto activation : {model::Activation::kSilu, model::Activation::kGeluTanh}) {
      std::vector<float> expected;
      in_many_orders([&](Device& device) {
        if (expected.empty()) expected = gated_product(device, of, shape, dtype, activation, false);
        ASSERT_EQ(gated_product(device, of, shape, dtype, activation, true), expected)
            << shape.rows << " x " << shape.n << " x " << shape.k;
      });
    }
  }
}

struct Heads {
  uint32_t heads;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t rotary;
};

/// What rope() makes of the product that few_rows() stores, or few_rows() by itself: queries, then K/V
/// blocks.
std::vector<float> rotated_product(Device& device, const Operands& of, const Shape& shape, DType dtype,
                                   const Heads& heads, bool in_one) {
  constexpr uint32_t kBlockSize = 16;
  constexpr uint32_t kBlocks = 3;
  constexpr uint32_t kPositions = 50;
  const backend::cuda::KvBlocks blocks{dtype, kBlockSize, heads.kv_heads, heads.head_dim};
  std::vector<uint32_t> positions;
  std::vector<uint32_t> places;
  for (uint32_t row = 0; row < shape.rows; ++row) {
    positions.push_back((row * 17 + 3) % kPositions);
    places.push_back((row * 7 + 30) % (kBlocks * kBlockSize));
  }
  Elements x(device, "x", of.x, dtype);
  Elements weights(device, "weights", of.weights, dtype);
  Elements bias(device, "bias", of.bias, dtype);
  Elements qkv(device, "qkv", size_t{shape.rows} * shape.n, dtype);
  DeviceArray<float> cos_sin(device, "cos_sin",
                             stored_floats(9, size_t{kPositions} * (heads.rotary + 1), DType::kF32));
  DeviceArray<uint32_t> at(device, "positions", positions);
  DeviceArray<uint32_t> to(device, "places", places);
  Elements cache(device, "cache", std::vector<float>(kBlocks * blocks.block_elements(), 0.25F), dtype);
  const backend::cuda::RopeArgs rope{blocks,    qkv.data(), heads.heads,  heads.rotary, cos_sin.data(),
                                     at.data(), to.data(),  cache.data(), shape.rows};
  backend::cuda::FewRowsArgs args{.dtype = dtype,
                                  .out_dtype = dtype,
                                  .x = x.data(),
                                  .weights = weights.data(),
                                  .bias = shape.bias ? bias.data() : nullptr,
                                  .y = qkv.data(),
                                  .rows = shape.rows,
                                  .n = shape.n,
                                  .k = shape.k};
  if (in_one) args.rope = rope;
  EXPECT_EQ(few_rows(args, nullptr), 0);
  if (!in_one) {
    EXPECT_EQ(backend::cuda::rope(rope, nullptr), 0);
  }
  std::vector<float> values;
  for (size_t row = 0; row < shape.rows; ++row) {
    for (size_t i = 0; i < size_t{heads.heads} * heads.head_dim; ++i)
      values.push_back(qkv.at(row * shape.n + i));
  }
  for (size_t i = 0; i < cache.size(); ++i) values.push_back(cache.at(i));
  return values;
}

TEST_P(FewRows, OfRotatedHeadsAreWhatTwoKernelsGive) {
  const DType dtype = GetParam();
  const std::pair<Heads, Shape> cases[] = {{{2, 1, 64, 64}, {1, 256, 512, true}},
                                           {{2, 1, 96, 32}, {3, 384, 256, false}},
                                           {{5, 5, 80, 32}, {8, 1200, 256, true}},
                                           {{2, 1, 64, 0}, {5, 256, 1280, false}}};
  for (const auto& [heads, shape] : cases) {
    ASSERT_TRUE(backend::cuda::few_rows_rotates(heads.head_dim, heads.rotary));
    const Operands of = operands(shape, dtype);
    std::vector<float> expected;
    in_many_orders([&](Device& device) {
      if (expected.empty()) expected = rotated_product(device, of, shape, dtype, heads, false);
      ASSERT_EQ(rotated_product(device, of, shape, dtype, heads, true), expected)
          << shape.rows << " rows, heads of " << heads.head_dim;
    });
  }
  EXPECT_FALSE(backend::cuda::few_rows_rotates(80, 40));
  EXPECT_FALSE(backend::cuda::few_rows_rotates(8, 0));
}

/// A kernel before it in the stream writes x, and is not waited for.
TEST_P(FewRows, AreReadOnceTheyAreWritten) {
  const DType dtype = GetParam();
  const Shape shape{4, 16, 512, false};
  const Operands of = operands(shape, dtype);
  Operands doubled = of;
  for (float& value : doubled.x) value *= 2.0F;
  const std::vector<float> expected = reference(doubled, shape);
  in_many_orders([&](Device& device) {
    Elements x(device, "x", of.x, dtype);
    Elements weights(device, "weights", of.weights, dtype);
    Elements y(device, "y", expected.size(), DType::kF32);
    const backend::cuda::FewRowsArgs args{dtype,    DType::kF32, x.data(), weights.data(), nullptr,
                                          y.data(), shape.rows,  shape.n,  shape.k};
    const auto count = static_cast<uint32_t>(of.x.size());
    const backend::cuda::OwnStream stream;
    backend::cuda::synchronize(nullptr);
    ASSERT_EQ(backend::cuda::add({dtype, x.data(), 2.0F, nullptr, 0.0F, count}, stream.get()), 0);
    ASSERT_EQ(few_rows(args, stream.get()), 0);
    backend::cuda::synchronize(stream.get());
    expect_near(y, expected, 1e-5);
  });
}

TEST_P(FewRows, OfWholeColumnsAndStages) {
  const DType dtype = GetParam();
  EXPECT_TRUE(few_rows_multiplies(dtype, dtype, 16, 256));
  EXPECT_TRUE(few_rows_multiplies(dtype, DType::kF32, 128256, 2048));
  EXPECT_FALSE(few_rows_multiplies(dtype, dtype, 24, 256));
  EXPECT_FALSE(few_rows_multiplies(dtype, dtype, 16, 384));
  EXPECT_FALSE(few_rows_multiplies(DType::kF32, DType::kF32, 16, 256));
}

INSTANTIATE_TEST_SUITE_P(Formats, FewRows, testing::Values(DType::kF16, DType::kBF16), format_name);

}  // namespace
}  // namespace quire::test::fibers
