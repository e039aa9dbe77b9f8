// Products with weights of int8, against sums in double; and of int4, against those of int8.
#include "backend/cuda/int8_product.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/expert_product.h"
#include "backend/cuda/int4_weights.h"
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
  std::vector<int8_t> small;    // of int4: these times their groups' scales are the weights
  std::vector<int8_t> groups;   // [experts, n, k / 32]
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

  /// Makes other weights, whose integers are products of all that int4 can have.
  void make_int4(const Int8Shape& shape) {
    SplitMix64 rng(5);
    const auto drawn = [&rng](int from, int to) {
      return static_cast<int8_t>(from + static_cast<int>(rng.below(static_cast<uint64_t>(to - from + 1))));
    };
    for (size_t i = 0; i < weights.size(); ++i) {
      if (i % shape.k % cuda::kInt4Scaled == 0) groups.push_back(drawn(-15, 15));
      small.push_back(drawn(-8, 7));
      weights[i] = static_cast<int8_t>(small[i] * groups.back());
    }
  }

  std::vector<std::byte> packed_int4(const Int8Shape& shape) const {
    const size_t bytes = cuda::int4_row_bytes(shape.k);
    std::vector<std::byte> out(weights.size() / shape.k * bytes);
    for (size_t i = 0; i < small.size(); ++i) {
      const uint32_t nibble = cuda::int4_place(static_cast<uint32_t>(i % shape.k));
      out[i / shape.k * bytes + nibble / 2] |= static_cast<std::byte>((small[i] + 8) << nibble % 2 * 4);
    }
    return out;
  }
  std::vector<int8_t> packed_groups(const Int8Shape& shape) const {
    const size_t bytes = cuda::int4_scale_bytes(shape.n, shape.k);
    const size_t in_row = (shape.k + cuda::kInt4Scaled - 1) / cuda::kInt4Scaled;
    std::vector<int8_t> out(std::max(shape.experts, 1U) * bytes);
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto row = static_cast<uint32_t>(i / in_row);
      const auto first = static_cast<uint32_t>(i % in_row * cuda::kInt4Scaled);
      out[row / shape.n * bytes + cuda::int4_scale_place(row % shape.n, first, shape.k)] = groups[i];
    }
    return out;
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

/// By int4 if `of` has it and `as_int4`.
std::vector<float> multiplied(Device& device, const Int8Operands& of, const Int8Shape& shape, DType dtype,
                              DType out, bool as_int4 = false) {
  Elements x(device, "x", of.x, dtype);
  DeviceArray<std::byte> weights(device, "weights", as_int4 ? of.packed_int4(shape) : of.packed(shape));
  DeviceArray<int8_t> groups(device, "groups", as_int4 ? of.packed_groups(shape) : std::vector<int8_t>(1));
  DeviceArray<float> scales(device, "scales", of.scales);
  Elements bias(device, "bias", of.bias, dtype);
  const uint32_t stride = cuda::result_stride(shape.n, out);
  Elements y(device, "y", size_t{shape.rows} * stride, out);
  cuda::Int8ProductArgs args{.dtype = dtype,
                             .out_dtype = out,
                             .x = x.data(),
                             .weights = weights.data(),
                             .scales = scales.data(),
                             .group_scales = as_int4 ? groups.data() : nullptr,
                             .bias = shape.bias ? bias.data() : nullptr,
                             .y = y.data(),
                             .rows = shape.rows,
                             .n = shape.n,
                             .k = shape.k};
  if (shape.experts > 0) {
    Int8Groups choices(device, shape, of.chosen);
    args.x_choices = shape.x_choices;
    args.num_experts = shape.experts;
    args.chosen = choices.chosen.data();
    args.order = choices.order.data();
    args.tiles = choices.tiles.data();
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

/// In the shapes in which int8 is tested, and with other rests of k. So bits do not depend on the number of
/// rows either.
TEST_P(Int8Product, OfInt4IsThatOfTheIntegersThatItStandsFor) {
  const DType dtype = GetParam();
  for (const Int8Shape& shape :
       {Int8Shape{1, 24, 8}, Int8Shape{1, 16, 2048, true}, Int8Shape{3, 40, 264},
        Int8Shape{8, 32, 7000, true}, Int8Shape{9, 40, 72, true}, Int8Shape{64, 32, 1160},
        Int8Shape{70, 24, 384}, Int8Shape{4, 40, 64, false, 16, 2}, Int8Shape{24, 24, 136, false, 6, 4},
        Int8Shape{100, 136, 776, false, 2, 1}}) {
    SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.n << " x " << shape.k);
    Int8Operands of(shape, dtype);
    of.make_int4(shape);
    std::vector<float> expected;
    {
      Device device(1);
      expected = multiplied(device, of, shape, dtype, DType::kF32);
    }
    in_many_orders(
        [&](Device& device) { ASSERT_EQ(multiplied(device, of, shape, dtype, DType::kF32, true), expected); },
        4);
  }
}

/// Each integer with each scale of a group is exact.
TEST_P(Int8Product, OfInt4IsExactForEachPair) {
  const Int8Shape shape{1, 31 * 8, 512};
  Int8Operands of(shape, GetParam());
  of.make_int4(shape);
  std::ranges::fill(of.x, 0.0F);
  of.x[0] = 1.0F;
  std::ranges::fill(of.scales, 1.0F);
  for (uint32_t column = 0; column < shape.n; ++column) {
    of.groups[column * 16] = static_cast<int8_t>(static_cast<int>(column / 8) - 15);
    of.small[size_t{column} * shape.k] = static_cast<int8_t>(static_cast<int>(column % 8) - 8);
  }
  for (const int add : {0, 8}) {
    for (uint32_t column = 0; column < shape.n; ++column) {
      if (add > 0) of.small[size_t{column} * shape.k] += 8;
    }
    Device device(1);
    const std::vector<float> found = multiplied(device, of, shape, GetParam(), DType::kF32, true);
    for (uint32_t column = 0; column < shape.n; ++column) {
      ASSERT_EQ(found[column], of.small[size_t{column} * shape.k] * of.groups[column * 16]) << column;
    }
  }
}

TEST(Int4Weights, HaveAPlaceEach) {
  for (const uint32_t k : {8U, 128U, 200U, 520U}) {
    std::vector<bool> taken(size_t{2} * cuda::int4_row_bytes(k));
    for (uint32_t i = 0; i < k; ++i) {
      ASSERT_LT(cuda::int4_place(i), taken.size());
      ASSERT_FALSE(taken[cuda::int4_place(i)]);
      taken[cuda::int4_place(i)] = true;
    }
    constexpr uint32_t kRows = 19;
    std::vector<bool> scales(cuda::int4_scale_bytes(kRows, k));
    for (uint32_t row = 0; row < kRows; ++row) {
      for (uint32_t i = 0; i < k; i += cuda::kInt4Scaled) {
        const size_t place = cuda::int4_scale_place(row, i, k);
        ASSERT_LT(place, scales.size());
        ASSERT_FALSE(scales[place]);
        scales[place] = true;
        EXPECT_EQ(cuda::int4_scale_place(row, std::min(i + 31, k - 1), k), place);
      }
    }
  }
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
