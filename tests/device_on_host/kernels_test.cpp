#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/copy_blocks.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/embed.h"
#include "backend/cuda/gated.h"
#include "backend/cuda/rms_norm.h"
#include "backend/cuda/rope.h"
#include "kernels/elementwise.h"
#include "tests/device_on_host/support.h"

namespace quire::test::fibers {
namespace {

class Kernels : public testing::TestWithParam<DType> {
 protected:
  ThreadPool pool_{1};
  kernels::KernelContext context_{kernels::IsaLevel::kReference, pool_};
};

TEST_P(Kernels, RmsNormAddsTheResidualFirst) {
  const DType dtype = GetParam();
  for (const bool has_residual : {false, true}) {
    for (const uint32_t width : {8U, 64U, 200U, 2048U, 2056U}) {
      constexpr uint32_t kRows = 3;
      constexpr float kFactor = 0.25F;
      const std::vector<float> x = stored_floats(width, kRows * width, dtype, 2.0F);
      const std::vector<float> weight = stored_floats(2, width, DType::kF32);
      std::vector<float> residual = stored_floats(3, kRows * width, dtype, 2.0F);
      std::vector<float> sum = residual;
      kernels::add_in_place(context_, sum.data(), x.data(), x.size(), kFactor);
      for (float& value : sum) value = stored(value, dtype);
      std::vector<float> expected(x.size());
      kernels::rms_norm(context_, has_residual ? sum.data() : x.data(), width, weight.data(), 1e-5F,
                        expected.data(), width, kRows, width);
      in_many_orders([&](Device& device) {
        Elements on_device(device, "x", x, dtype);
        DeviceArray<float> weights(device, "weight", weight);
        Elements residuals(device, "residual", residual, dtype);
        Elements y(device, "y", x.size(), dtype);
        ASSERT_EQ(backend::cuda::rms_norm({dtype, on_device.data(), has_residual ? residuals.data() : nullptr,
                                           kFactor, weights.data(), y.data(), 1e-5F, kRows, width, 1, width},
                                          nullptr),
                  0);
        expect_near(y, expected);
        if (has_residual) expect_near(residuals, sum, dtype == DType::kF32 ? 1e-6 : 0.01);
      });
    }
  }
}

TEST_P(Kernels, RmsNormOfHeadsWithinRows) {
  const DType dtype = GetParam();
  constexpr uint32_t kRows = 3;
  constexpr uint32_t kHeads = 2;
  constexpr uint32_t kWidth = 24;
  constexpr uint32_t kStride = 80;  // what lies behind the heads stays as it is
  const std::vector<float> x = stored_floats(1, kRows * kStride, dtype, 2.0F);
  const std::vector<float> weight = stored_floats(2, kWidth, DType::kF32);
  std::vector<float> expected = x;
  for (uint32_t row = 0; row < kRows; ++row) {
    float* at = expected.data() + row * kStride;
    kernels::rms_norm(context_, at, kWidth, weight.data(), 1e-5F, at, kWidth, kHeads, kWidth);
  }
  in_many_orders([&](Device& device) {
    Elements on_device(device, "x", x, dtype);
    DeviceArray<float> weights(device, "weight", weight);
    ASSERT_EQ(backend::cuda::rms_norm({dtype, on_device.data(), nullptr, 1.0F, weights.data(),
                                       on_device.data(), 1e-5F, kRows * kHeads, kWidth, kHeads, kStride},
                                      nullptr),
              0);
    expect_near(on_device, expected);
  });
}

TEST_P(Kernels, AddScalesBoth) {
  const DType dtype = GetParam();
  for (const uint32_t count : {8U, 2056U}) {
    const std::vector<float> x = stored_floats(1, count, dtype, 2.0F);
    const std::vector<float> y = stored_floats(2, count, dtype, 2.0F);
    for (const bool has_x : {false, true}) {
      std::vector<float> expected = y;
      kernels::scale_in_place(context_, expected.data(), count, 3.0F);
      if (has_x) kernels::add_in_place(context_, expected.data(), x.data(), count, 0.5F);
      in_many_orders([&](Device& device) {
        Elements more(device, "x", x, dtype);
        Elements sum(device, "y", y, dtype);
        ASSERT_EQ(backend::cuda::add({dtype, sum.data(), 3.0F, has_x ? more.data() : nullptr, 0.5F, count},
                                     nullptr),
                  0);
        expect_near(sum, expected);
      });
    }
  }
}

TEST_P(Kernels, EmbedGathersRows) {
  const DType dtype = GetParam();
  constexpr uint32_t kVocabulary = 11;
  for (const uint32_t width : {8U, 200U, 2056U}) {
    const std::vector<float> table = stored_floats(width, size_t{kVocabulary} * width, dtype);
    const std::vector<uint32_t> tokens = {10, 0, 3, 3, 7};
    std::vector<float> expected;
    for (const uint32_t token : tokens) {
      expected.insert(expected.end(), table.begin() + token * width, table.begin() + (token + 1) * width);
    }
    in_many_orders([&](Device& device) {
      Elements on_device(device, "table", table, dtype);
      DeviceArray<uint32_t> rows(device, "tokens", tokens);
      Elements out(device, "out", expected.size(), dtype);
      const auto count = static_cast<uint32_t>(tokens.size());
      ASSERT_EQ(
          backend::cuda::embed({dtype, on_device.data(), rows.data(), out.data(), count, width}, nullptr), 0);
      expect_near(out, expected, 0.0);
    });
  }
}

TEST_P(Kernels, Gated) {
  const DType dtype = GetParam();
  constexpr uint32_t kRows = 3;
  for (const model::Activation activation : {model::Activation::kSilu, model::Activation::kGeluTanh}) {
    const auto reference = activation == model::Activation::kSilu ? kernels::swiglu : kernels::geglu;
    for (const uint32_t width : {8U, 72U, 1032U}) {
      const std::vector<float> gate_up = stored_floats(width, size_t{2} * kRows * width, dtype, 20.0F);
      std::vector<float> expected(size_t{kRows} * width);
      reference(context_, gate_up.data(), expected.data(), kRows, width);
      in_many_orders([&](Device& device) {
        Elements in(device, "gate_up", gate_up, dtype);
        Elements out(device, "out", expected.size(), dtype);
        ASSERT_EQ(backend::cuda::gated({dtype, activation, in.data(), out.data(), kRows, width}, nullptr), 0);
        expect_near(out, expected);
      });
    }
  }
}

TEST_P(Kernels, CopyBlocks) {
  const DType dtype = GetParam();
  const backend::cuda::KvBlocks blocks{dtype, 16, 3, 80};
  constexpr size_t kBlocks = 7;
  constexpr uint32_t kLayers = 2;
  const size_t array = kBlocks * blocks.block_elements();
  const std::vector<float> before = stored_floats(1, kLayers * array, dtype);
  const std::vector<uint32_t> pairs = {5, 0, 2, 6, 5, 3};
  std::vector<float> expected = before;
  for (size_t i = 0; i < pairs.size(); i += 2) {
    for (size_t layer = 0; layer < kLayers; ++layer) {
      const auto at = [&](size_t block) {
        return expected.begin() + static_cast<ptrdiff_t>(layer * array + block * blocks.block_elements());
      };
      std::copy_n(at(pairs[i]), blocks.block_elements(), at(pairs[i + 1]));
    }
  }
  const size_t bytes = array * dtype_bytes(dtype);
  const auto count = static_cast<uint32_t>(pairs.size() / 2);
  in_many_orders([&](Device& device) {
    Elements cache(device, "cache", before, dtype);
    DeviceArray<uint32_t> list(device, "pairs", pairs);
    ASSERT_EQ(backend::cuda::copy_blocks(
                  {cache.data(), blocks.block_bytes(), bytes, kLayers, list.data(), count}, nullptr),
              0);
    expect_near(cache, expected, 0.0);
  });
}

#ifndef QUIRE_REAL_DEVICE
TEST_P(Kernels, CopyBlocksFilledInPart) {
  const backend::cuda::KvBlocks blocks{GetParam(), 16, 3, 80};
  const size_t block = blocks.block_bytes();
  constexpr size_t kFilled = 64;  // bytes, in the middle of each block
  in_many_orders([&](Device& device) {
    Elements cache(device, "cache", 3 * blocks.block_elements(), GetParam());
    for (const size_t at : {size_t{0}, block}) cache.region().mark_written(at + 128, kFilled);
    cache.region().mark_written(2 * block, block);
    DeviceArray<uint32_t> list(device, "pairs", std::vector<uint32_t>{1, 2});
    ASSERT_EQ(backend::cuda::copy_blocks({cache.data(), block, 3 * block, 1, list.data(), 1}, nullptr), 0);
    EXPECT_TRUE(cache.region().is_written(2 * block + 128, kFilled));
    EXPECT_EQ(cache.region().bytes_written(), 3 * kFilled);
  });
}
#endif

struct RopeShape {
  uint32_t heads;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t rotary;
  uint32_t block_size;
};

/// The rows as the reference rotates them, rounded to `dtype`.
std::vector<float> rotated(kernels::KernelContext& context, std::vector<float> qkv, const RopeShape& shape,
                           const std::vector<float>& cos_sin, const std::vector<uint32_t>& positions,
                           DType dtype) {
  const size_t width = size_t{shape.heads + 2 * shape.kv_heads} * shape.head_dim;
  kernels::rope(context, qkv.data(), width, positions.size(), shape.heads + shape.kv_heads, shape.head_dim,
                shape.rotary, cos_sin.data(), positions.data());
  for (float& value : qkv) value = stored(value, dtype);
  return qkv;
}

TEST_P(Kernels, RopeRotatesAndScatters) {
  const DType dtype = GetParam();
  for (const RopeShape& shape : {RopeShape{8, 2, 64, 64, 16},
                                 {5, 5, 80, 32, 32},
                                 {7, 1, 96, 96, 16},
                                 {4, 2, 96, 32, 16},
                                 {3, 1, 128, 128, 32}}) {
    const backend::cuda::KvBlocks blocks{dtype, shape.block_size, shape.kv_heads, shape.head_dim};
    const std::vector<uint32_t> positions = {0, 40, 17, 3};
    const std::vector<uint32_t> places = {0, 2 * shape.block_size + 8, shape.block_size - 1,
                                          shape.block_size};
    const size_t width = size_t{shape.heads + 2 * shape.kv_heads} * shape.head_dim;
    const std::vector<float> qkv = stored_floats(width, positions.size() * width, dtype);
    const std::vector<float> cos_sin = stored_floats(9, size_t{41} * shape.rotary, DType::kF32);
    const std::vector<float> expected = rotated(context_, qkv, shape, cos_sin, positions, dtype);
    in_many_orders([&](Device& device) {
      Elements rows(device, "qkv", qkv, dtype);
      DeviceArray<float> table(device, "cos_sin", cos_sin);
      DeviceArray<uint32_t> at(device, "positions", positions);
      DeviceArray<uint32_t> to(device, "places", places);
      Elements cache(device, "cache", 3 * blocks.block_elements(), dtype);
      ASSERT_EQ(backend::cuda::rope({blocks, rows.data(), shape.heads, shape.rotary, table.data(), at.data(),
                                     to.data(), cache.data(), static_cast<uint32_t>(positions.size())},
                                    nullptr),
                0);
#ifndef QUIRE_REAL_DEVICE
      const size_t kv_width = size_t{shape.kv_heads} * shape.head_dim;
      EXPECT_EQ(cache.region().bytes_written(), 2 * positions.size() * kv_width * dtype_bytes(dtype));
#endif
      for (size_t row = 0; row < positions.size(); ++row) {
        for (size_t i = 0; i < width; ++i) {
          const size_t head = i / shape.head_dim;
          size_t element = row * width + i;
          const Elements* where = &rows;
          if (head >= shape.heads) {
            const size_t kv = (head - shape.heads) % shape.kv_heads;
            const bool is_value = head >= shape.heads + shape.kv_heads;
            where = &cache;
            element = places[row] / shape.block_size * blocks.block_elements() + blocks.k_of_head(kv) +
                      (is_value ? blocks.v_after_k() : 0) + places[row] % shape.block_size * shape.head_dim +
                      i % shape.head_dim;
          }
          const float wanted = expected[row * width + i];
          ASSERT_NEAR(where->at(element), wanted, tolerance(dtype)) << "row " << row << " element " << i;
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Kernels, testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         format_name);

}  // namespace
}  // namespace quire::test::fibers
