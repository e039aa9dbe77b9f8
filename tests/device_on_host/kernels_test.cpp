#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/rms_norm.h"
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
      const std::vector<float> x = stored_floats(width, kRows * width, dtype, 2.0F);
      const std::vector<float> weight = stored_floats(2, width, dtype);
      std::vector<float> residual = stored_floats(3, kRows * width, dtype, 2.0F);
      std::vector<float> sum = residual;
      kernels::add_in_place(context_, sum.data(), x.data(), x.size());
      for (float& value : sum) value = stored(value, dtype);
      std::vector<float> expected(x.size());
      kernels::rms_norm(context_, has_residual ? sum.data() : x.data(), width, weight.data(), 1e-5F,
                        expected.data(), width, kRows, width);
      in_many_orders([&](Device& device) {
        Elements on_device(device, "x", x, dtype);
        Elements weights(device, "weight", weight, dtype);
        Elements residuals(device, "residual", residual, dtype);
        Elements y(device, "y", x.size(), dtype);
        ASSERT_EQ(backend::cuda::rms_norm({dtype, on_device.data(), has_residual ? residuals.data() : nullptr,
                                           weights.data(), y.data(), 1e-5F, kRows, width},
                                          nullptr),
                  0);
        expect_near(y, expected);
        if (has_residual) expect_near(residuals, sum, 0.0);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Kernels, testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         format_name);

}  // namespace
}  // namespace quire::test::fibers
