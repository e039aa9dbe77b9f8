// Products with weights of int8, against sums in double.
#include "backend/cuda/int8_product.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/expert_product.h"
#include "backend/cuda/int8_weights.h"
#include "backend/cuda/lt_product.h"
#include "tests/device_on_host/support.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;

struct Int8Shape {
  uint32_t rows;
  uint32_t n;
  uint32_t k;
  bool bias = false;
  uint32_t experts = 0;  // 0: none
  uint32_t x_choices = 1;
};

struct Int8Operands {
  std::vector<float> x;
  std::vector<int8_t> weights;  // [experts, n, k]
  std::vector<float> scales;
  std::vector<float> bias;
  std::vector<uint32_t> chosen;

  Int8Operands(const Int8Shape& shape, DType dtype)
      : x(stored_floats(1, shape.rows / shape.x_choices * shape.k, dtype, 2.0F)) {
    SplitMix64 rng(2);
    const size_t matrices = std::max(shape.experts, 1U);
    for (size_t i = 0; i < matrices * shape.n * shape.k; ++i) {
      weights.push_back(static_cast<int8_t>(static_cast<int>(rng.below(255)) - 127));
    }
    scales = stored_floats(3, matrices * shape.n, DType::kF32, 0.05F / static_cast<float>(shape.k));
    bias = stored_floats(4, shape.n, dtype);
    for (uint32_t i = 0; shape.experts > 0 && i < shape.rows; ++i) {
      chosen.push_back(static_cast<uint32_t>(rng.below(shape.experts)));
    }
  }

  std::vector<std::byte> packed(const Int8Shape& shape) const {
    const size_t bytes = cuda::int8_row_bytes(shape.k);
    std::vector<std::byte> out(weights.size() / shape.k * bytes);
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto column = static_cast<uint32_t>(i % shape.k);
      out[i / shape.k * bytes + cuda::int8_place(column)] = static_cast<std::byte>(weights[i]);
    }
    return out;
  }

  std::vector<float> reference(const Int8Shape& shape) const {
    std::vector<float> out;
    for (size_t row = 0; row < shape.rows; ++row) {
      for (size_t column = 0; column < shape.n; ++column) {
        const size_t in_all = (chosen.empty() ? 0 : chosen[row]) * size_t{shape.n} + column;
        double sum = 0;
        for (size_t j = 0; j < shape.k; ++j) {
          sum += double{x[row / shape.x_choices * shape.k + j]} * weights[in_all * shape.k + j];
        }
        out.push_back(static_cast<float>(sum * scales[in_all] + (shape.bias ? bias[column] : 0.0F)));
      }
    }
    return out;
  }
};

/// The choices of each expert, put together as the backend does.
struct Int8Groups {
  DeviceArray<uint32_t> chosen;
  DeviceArray<uint32_t> order;
  DeviceArray<cuda::ExpertTile> tiles;

  Int8Groups(Device& device, const Int8Shape& shape, const std::vector<uint32_t>& choices)
      : chosen(device, "chosen", choices),
        order(device, "order", choices.size()),
        tiles(device, "tiles", cuda::expert_tiles(shape.rows, shape.experts, cuda::kSmallTile)) {
    const uint32_t in_tile = cuda::tile_choices(shape.rows, shape.experts);
    if (in_tile == 1) return;
    EXPECT_EQ(cuda::group_by_expert(
                  {chosen.data(), shape.rows, shape.experts, in_tile, order.data(), tiles.data()}, nullptr),
              0);
  }
};

std::vector<float> multiplied(Device& device, const Int8Operands& of, const Int8Shape& shape, DType dtype,
                              DType out) {
  Elements x(device, "x", of.x, dtype);
  DeviceArray<std::byte> weights(device, "weights", of.packed(shape));
  DeviceArray<float> scales(device, "scales", of.scales);
  Elements bias(device, "bias", of.bias, dtype);
  const uint32_t stride = cuda::result_stride(shape.n, out);
  Elements y(device, "y", size_t{shape.rows} * stride, out);
  cuda::Int8ProductArgs args{.dtype = dtype,
                             .out_dtype = out,
                             .x = x.data(),
                             .weights = weights.data(),
                             .scales = scales.data(),
                             .bias = shape.bias ? bias.data() : nullptr,
                             .y = y.data(),
                             .rows = shape.rows,
                             .n = shape.n,
                             .k = shape.k};
  if (shape.experts > 0) {
    Int8Groups groups(device, shape, of.chosen);
    args.x_choices = shape.x_choices;
    args.num_experts = shape.experts;
    args.chosen = groups.chosen.data();
    args.order = groups.order.data();
    args.tiles = groups.tiles.data();
  }
  EXPECT_EQ(cuda::int8_product(args, nullptr), 0);
  std::vector<float> values;
  for (size_t row = 0; row < shape.rows; ++row) {
    for (size_t column = 0; column < shape.n; ++column) values.push_back(y.at(row * stride + column));
  }
  return values;
}

class Int8Product : public testing::TestWithParam<DType> {};

void expect_as_reference(const Int8Shape& shape, DType dtype, DType out, uint64_t orders) {
  SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.n << " x " << shape.k << " to "
                                  << dtype_name(out));
  const Int8Operands of(shape, dtype);
  const std::vector<float> expected = of.reference(shape);
  std::vector<float> first;
  in_many_orders(
      [&](Device& device) {
        const std::vector<float> found = multiplied(device, of, shape, dtype, out);
        const double bound = out == DType::kF32 ? 1e-5 : 0.01;
        for (size_t i = 0; i < found.size(); ++i) {
          ASSERT_NEAR(found[i], expected[i], bound * std::max(1.0F, std::abs(expected[i]))) << i;
        }
        if (first.empty()) first = found;
        ASSERT_EQ(found, first);
      },
      orders);
}

/// Of up to eight rows and of more. Of k, less than 64, and stages of each kind with a rest; of n, what ends
/// within a block.
TEST_P(Int8Product, IsTheReferences) {
  const DType dtype = GetParam();
  for (const Int8Shape& shape :
       {Int8Shape{1, 24, 8}, {1, 16, 2048, true}, {3, 40, 264}, {8, 32, 3400, true}}) {
    expect_as_reference(shape, dtype, dtype, kOrders);
  }
  for (const Int8Shape& shape : {Int8Shape{9, 40, 72, true}, {64, 32, 1160}, {70, 24, 128}}) {
    expect_as_reference(shape, dtype, dtype, 4);
  }
  // A head's vocabulary may be any number.
  for (const Int8Shape& shape : {Int8Shape{2, 53, 320}, {33, 53, 320}}) {
    expect_as_reference(shape, dtype, DType::kF32, 4);
  }
}

TEST_P(Int8Product, OfExpertsIsTheReferences) {
  const DType dtype = GetParam();
  // A choice in a tile, a few, and many; of k, less than a stage, and several laps of the ring with a rest.
  for (const Int8Shape& shape :
       {Int8Shape{4, 40, 64, false, 16, 2}, Int8Shape{4, 16, 3400, false, 16, 2},
        Int8Shape{24, 24, 136, false, 6, 4}, Int8Shape{24, 16, 3400, false, 6, 1},
        Int8Shape{100, 136, 72, false, 2, 1}, Int8Shape{100, 40, 648, false, 2, 1}}) {
    expect_as_reference(shape, dtype, dtype, 4);
  }
}

/// Makes the exact sums 0: what is left of them is their rounding, which tells in which order they were
/// added.
void cancel_int8(Int8Operands& of, const Int8Shape& shape) {
  const uint32_t half = shape.k / 2;
  for (size_t i = 0; i < of.x.size(); ++i) {
    if (i % shape.k >= half) of.x[i] = -of.x[i - half];
  }
  for (size_t i = 0; i < of.weights.size(); ++i) {
    if (i % shape.k >= half) of.weights[i] = of.weights[i - half];
  }
}

/// As one of one, of so many that blocks have few columns, and of so many that they have many.
TEST_P(Int8Product, ARowHasTheSameBitsAmongAnyNumber) {
  const DType dtype = GetParam();
  constexpr uint32_t kColumns = 8192;
  const Int8Shape all{65, kColumns, 336};
  Int8Operands of(all, dtype);
  cancel_int8(of, all);
  Device device(1);
  const std::vector<float> many = multiplied(device, of, all, dtype, DType::kF32);
  for (const uint32_t rows : {1U, 8U, 9U}) {
    Int8Shape some = all;
    some.rows = rows;
    const std::vector<float> found = multiplied(device, of, some, dtype, DType::kF32);
    EXPECT_TRUE(std::ranges::equal(found, std::span(many).first(found.size()))) << rows;
  }
  EXPECT_TRUE(std::ranges::any_of(many, [](float value) { return value != 0.0F; }));
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

TEST(Int8Weights, HaveAPlaceEach) {
  for (const uint32_t k : {8U, 64U, 200U}) {
    std::vector<bool> taken(cuda::int8_row_bytes(k));
    for (uint32_t i = 0; i < k; ++i) {
      ASSERT_LT(cuda::int8_place(i), taken.size());
      ASSERT_FALSE(taken[cuda::int8_place(i)]);
      taken[cuda::int8_place(i)] = true;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Int8Product, testing::Values(DType::kF16, DType::kBF16), format_name);

}  // namespace
}  // namespace quire::test::fibers
