// The kernels of a feed-forward with experts, against the CPU's reference.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/expert_product.h"
#include "backend/cuda/route.h"
#include "kernels/moe.h"
#include "tests/device_on_host/support.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;

struct Routed {
  std::vector<uint32_t> chosen;
  std::vector<float> weights;
};

/// What the reference chooses of `logits`, [rows, experts].
Routed routed_by_reference(std::vector<float> logits, uint32_t rows, uint32_t top, bool normalize) {
  ThreadPool pool(1);
  kernels::KernelContext context{kernels::IsaLevel::kReference, pool};
  Routed out{std::vector<uint32_t>(rows * top), std::vector<float>(rows * top)};
  kernels::route(context, logits.data(), rows, static_cast<uint32_t>(logits.size() / rows), top, normalize,
                 out.chosen.data(), out.weights.data());
  return out;
}

/// The same on the device, with rows a few elements apart.
Routed routed(Device& device, const std::vector<float>& logits, uint32_t rows, uint32_t top, bool normalize) {
  const auto experts = static_cast<uint32_t>(logits.size() / rows);
  const uint32_t stride = (experts + 3) / 4 * 4;
  DeviceArray<float> in(device, "logits", size_t{rows} * stride);
  for (uint32_t row = 0; row < rows; ++row) {
    in.region().write(size_t{row} * stride * sizeof(float), logits.data() + size_t{row} * experts,
                      experts * sizeof(float));
  }
  DeviceArray<uint32_t> chosen(device, "chosen", size_t{rows} * top);
  DeviceArray<float> weights(device, "weights", size_t{rows} * top);
  EXPECT_EQ(
      cuda::route({in.data(), stride, rows, experts, top, normalize, chosen.data(), weights.data()}, nullptr),
      0);
  return {{chosen.values().begin(), chosen.values().end()},
          {weights.values().begin(), weights.values().end()}};
}

TEST(Experts, AreChosenAsTheReferenceDoes) {
  constexpr uint32_t kRows = 5;
  struct Shape {
    uint32_t experts;
    uint32_t top;
  };
  for (const Shape& shape : {Shape{1, 1}, {5, 2}, {8, 8}, {33, 3}, {128, 8}}) {
    for (const bool normalize : {false, true}) {
      SCOPED_TRACE(testing::Message() << shape.top << " of " << shape.experts);
      std::vector<float> logits = stored_floats(shape.experts, kRows * shape.experts, DType::kF32, 6.0F);
      // The first among equals; a row whose best is far ahead.
      for (uint32_t i = 0; i < shape.experts; ++i) logits[i] = static_cast<float>(i % 2);
      logits[2 * shape.experts - 1] = 90.0F;
      const Routed expected = routed_by_reference(logits, kRows, shape.top, normalize);
      in_many_orders([&](Device& device) {
        const Routed found = routed(device, logits, kRows, shape.top, normalize);
        EXPECT_EQ(found.chosen, expected.chosen);
        for (size_t i = 0; i < expected.weights.size(); ++i) {
          ASSERT_NEAR(found.weights[i], expected.weights[i], 1e-6) << i;
        }
      });
    }
  }
}

/// What comes of numbers that are none is no number, but always experts that there are, each once.
TEST(Experts, AreThereWhateverTheLogits) {
  constexpr uint32_t kExperts = 40;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> logits(4 * kExperts, kNan);
  for (uint32_t i = 0; i < kExperts; ++i) {
    logits[kExperts + i] = i % 3 == 0 ? kNan : static_cast<float>(i);
    logits[2 * kExperts + i] = -kInfinity;
    logits[3 * kExperts + i] = i == 7 ? kInfinity : -kInfinity;
  }
  for (const uint32_t top : {4U, kExperts}) {
    in_many_orders([&](Device& device) {
      const Routed found = routed(device, logits, 4, top, true);
      for (uint32_t row = 0; row < 4; ++row) {
        std::vector<uint32_t> chosen(found.chosen.begin() + row * top,
                                     found.chosen.begin() + (row + 1) * top);
        EXPECT_EQ(chosen[0], row == 1 ? 38U : row == 3 ? 7U : 0U);
        std::ranges::sort(chosen);
        EXPECT_EQ(std::ranges::adjacent_find(chosen), chosen.end());
        EXPECT_LT(chosen.back(), kExperts);
      }
      EXPECT_TRUE(std::isnan(found.weights[0]));
      EXPECT_NEAR(std::accumulate(found.weights.begin() + top, found.weights.begin() + 2 * top, 0.0F), 1.0F,
                  1e-5);
    });
  }
}

/// Experts of choices: all the same, some never, or any.
std::vector<uint32_t> some_choices(uint32_t count, uint32_t experts, uint32_t seed) {
  SplitMix64 rng(seed);
  std::vector<uint32_t> out(count);
  for (uint32_t& one : out) {
    one = seed == 0 ? experts - 1 : static_cast<uint32_t>(rng.below(seed == 1 ? (experts + 1) / 2 : experts));
  }
  return out;
}

/// Groups of choices on the device.
struct Grouped {
  DeviceArray<uint32_t> chosen;
  DeviceArray<uint32_t> order;
  DeviceArray<cuda::ExpertTile> tiles;

  Grouped(Device& device, const std::vector<uint32_t>& choices, uint32_t experts, uint32_t in_tile)
      : chosen(device, "chosen", choices),
        order(device, "order", choices.size()),
        tiles(device, "tiles", cuda::expert_tiles(static_cast<uint32_t>(choices.size()), experts, in_tile)) {
    EXPECT_EQ(cuda::group_by_expert({chosen.data(), static_cast<uint32_t>(choices.size()), experts, in_tile,
                                     order.data(), tiles.data()},
                                    nullptr),
              0);
  }
};

TEST(Experts, OfOneTileAreTheSame) {
  constexpr uint32_t kExperts = 11;
  for (const uint32_t in_tile : {cuda::kSmallTile, cuda::kLargeTile}) {
    for (const uint32_t count : {1U, 8U, 63U, 300U}) {
      for (uint32_t seed = 0; seed < 3; ++seed) {
        const std::vector<uint32_t> choices = some_choices(count, kExperts, seed);
        std::vector<uint32_t> first;
        in_many_orders([&](Device& device) {
          Grouped grouped(device, choices, kExperts, in_tile);
          const std::vector<uint32_t> order(grouped.order.values().begin(), grouped.order.values().end());
          if (first.empty()) first = order;
          EXPECT_EQ(order, first);
          std::vector<bool> met(count);
          uint32_t done = 0;
          for (const cuda::ExpertTile& tile : grouped.tiles.values()) {
            EXPECT_LE(tile.count, in_tile);
            if (tile.count == 0) continue;
            ASSERT_EQ(tile.first, done);  // one behind the other
            done += tile.count;
            for (uint32_t i = tile.first; i < done; ++i) {
              ASSERT_LT(order[i], count);
              ASSERT_FALSE(met[order[i]]);
              met[order[i]] = true;
              ASSERT_EQ(choices[order[i]], tile.expert);
            }
          }
          ASSERT_EQ(done, count);
        });
      }
    }
  }
}

class ExpertKernels : public testing::TestWithParam<DType> {};

struct ProductShape {
  uint32_t choices;
  uint32_t x_choices;
  uint32_t experts;
  uint32_t n;
  uint32_t k;
  uint64_t orders = kOrders;
};

/// One choice in a tile, a few, and many. Of k, less than a stage, and several laps of the ring with a rest;
/// of n, less than a block of threads has and more, and with so many tiles that they are more than a band.
const ProductShape kProducts[] = {{4, 2, 16, 40, 64},       {4, 1, 16, 72, 136, 4},  {4, 2, 16, 24, 1160, 4},
                                  {24, 4, 6, 24, 128},      {40, 1, 6, 136, 200, 4}, {24, 1, 6, 24, 1160, 4},
                                  {100, 2, 2, 136, 512, 2}, {150, 1, 4, 24, 80, 4},  {40, 1, 20, 136, 64, 2}};

struct ProductOperands {
  std::vector<uint32_t> chosen;
  std::vector<float> x;
  std::vector<float> weights;

  ProductOperands(const ProductShape& shape, DType dtype, uint32_t seed)
      : chosen(some_choices(shape.choices, shape.experts, seed)),
        x(stored_floats(1, size_t{shape.choices} / shape.x_choices * shape.k, dtype, 2.0F)),
        weights(stored_floats(2, size_t{shape.experts} * shape.n * shape.k, dtype,
                              4.0F / static_cast<float>(shape.k))) {}  // sums stay about 1

  std::vector<float> reference(const ProductShape& shape) const {
    std::vector<float> out;
    for (size_t choice = 0; choice < shape.choices; ++choice) {
      const float* row = x.data() + choice / shape.x_choices * shape.k;
      for (size_t column = 0; column < shape.n; ++column) {
        const float* of = weights.data() + (chosen[choice] * size_t{shape.n} + column) * shape.k;
        out.push_back(static_cast<float>(std::inner_product(row, row + shape.k, of, 0.0)));
      }
    }
    return out;
  }
};

std::vector<float> multiplied(Device& device, const ProductShape& shape, const ProductOperands& of,
                              DType dtype) {
  Elements x(device, "x", of.x, dtype);
  Elements weights(device, "weights", of.weights, dtype);
  Elements y(device, "y", size_t{shape.choices} * shape.n, dtype);
  const uint32_t in_tile = cuda::tile_choices(shape.choices, shape.experts);
  Grouped grouped(device, of.chosen, shape.experts, std::max(in_tile, 2U));
  EXPECT_EQ(cuda::expert_product({.dtype = dtype,
                                  .x = x.data(),
                                  .x_choices = shape.x_choices,
                                  .weights = weights.data(),
                                  .y = y.data(),
                                  .chosen = grouped.chosen.data(),
                                  .choices = shape.choices,
                                  .num_experts = shape.experts,
                                  .n = shape.n,
                                  .k = shape.k,
                                  .order = in_tile == 1 ? nullptr : grouped.order.data(),
                                  .tiles = in_tile == 1 ? nullptr : grouped.tiles.data()},
                                 nullptr),
            0);
  std::vector<float> values;
  for (size_t i = 0; i < y.size(); ++i) values.push_back(y.at(i));
  return values;
}

TEST_P(ExpertKernels, MultiplyAsTheReferenceDoes) {
  const DType dtype = GetParam();
  for (const ProductShape& shape : kProducts) {
    for (const uint32_t seed : {0U, 2U}) {
      SCOPED_TRACE(testing::Message() << shape.choices << " x " << shape.n << " x " << shape.k);
      const ProductOperands of(shape, dtype, seed);
      const std::vector<float> expected = of.reference(shape);
      std::vector<float> first;
      in_many_orders(
          [&](Device& device) {
            const std::vector<float> found = multiplied(device, shape, of, dtype);
            const double bound = dtype == DType::kF32 ? 1e-5 : 0.01;
            for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], bound) << i;
            if (first.empty()) first = found;
            ASSERT_EQ(found, first);
          },
          dtype == DType::kF32 ? std::min<uint64_t>(shape.orders, 2) : shape.orders);  // it has no barriers
    }
  }
}

/// Makes the exact sums 0: what is left of them is their rounding, which tells in which order they were
/// added.
void cancel(ProductOperands& operands, uint32_t k) {
  for (std::vector<float>* values : {&operands.x, &operands.weights}) {
    for (size_t i = 0; i < values->size(); ++i) {
      if (i % k < k / 2) continue;
      const float other = (*values)[i - k / 2];
      (*values)[i] = values == &operands.x ? -other : other;
    }
  }
}

/// A choice among others, in tiles of each size, has the bits that it has alone.
TEST_P(ExpertKernels, GiveAChoiceTheSameBitsAmongAnyNumber) {
  const DType dtype = GetParam();
  constexpr uint32_t kExperts = 5;
  for (const uint32_t choices : {12U, 90U}) {
    const ProductShape all{choices, 1, kExperts, 72, 592};
    ProductOperands of(all, dtype, 2);
    cancel(of, all.k);
    Device device(1);
    const std::vector<float> found = multiplied(device, all, of, dtype);
    for (uint32_t choice = 0; choice < choices; choice += 7) {
      ProductShape one = all;
      one.choices = 1;
      ProductOperands own = of;
      own.chosen = {of.chosen[choice]};
      own.x.assign(of.x.begin() + choice * all.k, of.x.begin() + (choice + 1) * all.k);
      const std::vector<float> alone = multiplied(device, one, own, dtype);
      EXPECT_TRUE(std::ranges::equal(alone, std::span(found).subspan(size_t{choice} * all.n, all.n)))
          << choice;
    }
    EXPECT_TRUE(device.findings().empty()) << device.report();
  }
}

TEST_P(ExpertKernels, CombineInOrder) {
  const DType dtype = GetParam();
  constexpr uint32_t kRows = 3;
  constexpr uint32_t kTop = 3;
  ThreadPool pool(1);
  kernels::KernelContext context{kernels::IsaLevel::kReference, pool};
  for (const uint32_t width : {8U, 264U, 2056U}) {
    const std::vector<float> y = stored_floats(width, size_t{kRows} * kTop * width, dtype, 2.0F);
    const std::vector<float> weights = stored_floats(2, kRows * kTop, DType::kF32);
    std::vector<uint32_t> places(kRows * kTop);
    std::iota(places.begin(), places.end(), 0);
    std::vector<float> expected(size_t{kRows} * width);
    kernels::combine_rows(context, y.data(), places.data(), weights.data(), kTop, expected.data(), kRows,
                          width);
    in_many_orders([&](Device& device) {
      Elements in(device, "y", y, dtype);
      DeviceArray<float> factors(device, "weights", weights);
      Elements out(device, "out", expected.size(), dtype);
      ASSERT_EQ(
          cuda::combine_choices({dtype, in.data(), factors.data(), out.data(), kRows, kTop, width}, nullptr),
          0);
      expect_near(out, expected);
    });
  }
}

/// Of sums in another order, other bits are left.
TEST(Experts, AddUpFromTheFirstChoiceOn) {
  constexpr uint32_t kWidth = 8;
  const std::vector<float> weights = {1.0F, 1.0F, 1.0F};
  std::vector<float> y;
  for (const float value : {0x1p24F, 1.0F, -0x1p24F}) y.insert(y.end(), kWidth, value);
  in_many_orders([&](Device& device) {
    Elements in(device, "y", y, DType::kF32);
    DeviceArray<float> factors(device, "weights", weights);
    Elements out(device, "out", kWidth, DType::kF32);
    ASSERT_EQ(
        cuda::combine_choices({DType::kF32, in.data(), factors.data(), out.data(), 1, 3, kWidth}, nullptr),
        0);
    expect_near(out, std::vector<float>(kWidth, 0.0F), 0.0);
  });
}

INSTANTIATE_TEST_SUITE_P(Formats, ExpertKernels, testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         format_name);

}  // namespace
}  // namespace quire::test::fibers
