// The measurements of tests/device, and the memory that its tests use, over the fibers: what they launch
// breaks no rule. Nothing is timed.
#include "tests/device/measure.h"

#include <algorithm>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "tests/device/device.h"
#include "tests/device_on_host/device.h"
#include "tests/device_on_host/fake_cublaslt.h"
#include "tests/device_on_host/ptx_probe.h"

namespace quire::test {

namespace gpu {
const backend::cuda::lt::Api& cublaslt() { return fibers::fake_cublaslt(); }
double seconds_of(const std::function<void()>& run) {
  run();
  run();  // again with what the first call has left
  return 1e-3;
}
double seconds_of_waiting(const std::function<void()>& run) { return seconds_of(run); }
}  // namespace gpu

namespace fibers {
namespace {

gpu::Sizes small_sizes() {
  gpu::Sizes out;
  out.model.vocab_size = 96;
  out.model.hidden_size = 64;
  out.model.num_layers = 2;
  out.model.num_heads = 4;
  out.model.num_kv_heads = 2;
  out.model.head_dim = 16;
  out.model.ffn_size = 128;
  out.model.windows.assign(2, 0);
  out.heads = 4;
  out.kv_heads = 2;
  out.head_dims = {64};
  out.decodes = {1, 3};
  out.context = 1040;  // more than a span
  out.prompts = {90};
  out.norm_rows = {3};
  out.gated_rows = {3};
  out.gemm_rows = {1, 65};
  out.sampled_rows = {1, 3};
  out.copied_blocks = {2};
  out.swapped_blocks = {1, 3};
  out.steps = {{1, 1, 20}, {3, 1, 33}, {1, 40, 40}, {2, 20, 20}};
  out.experts = {.hidden = 64, .ffn = 32, .count = 8, .top = 2, .rows = {1, 8, 40}};
  out.served = {1, 3};
  out.served_length = 32;  // the next token begins a block, and all begin again after it
  out.served_room = 1;
  out.beyond_caches = 1 << 15;
  return out;
}

/// What `measure` prints, on a device that has no objection.
template <class Measure>
std::string printed(const Measure& measure) {
  Device device(1);
  testing::internal::CaptureStdout();
  measure(small_sizes(), gpu::Ceilings{.copied = 1e9, .bf16 = 1e12, .host_link = 1e7});
  std::string out = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(device.findings().empty()) << device.report();
  return out;
}

size_t rows_of(const std::string& text) { return static_cast<size_t>(std::ranges::count(text, '\n')); }

TEST(Measurements, OfAttention) {
  const std::string text = printed(gpu::measure_attention);
  EXPECT_EQ(rows_of(text), 2U * 3 + 1) << text;
  // K and V of 3 x 1,040 tokens, 2 heads of 64, and 3 rows of q and out: of the time that was made up.
  EXPECT_NE(
      text.find("| decode_attention 3 x 1,040, 4/2 heads of 64 | 1000.0 | 1.6 | 160.1 % | 0.00 | 0.3 % |"),
      std::string::npos)
      << text;
}

TEST(Measurements, OfSmallKernels) { EXPECT_EQ(rows_of(printed(gpu::measure_small_kernels)), 2U); }

TEST(Measurements, OfMovingKernels) {
  const std::string text = printed(gpu::measure_moving_kernels);
  EXPECT_EQ(rows_of(text), 4U) << text;
  // 2 pairs of blocks of K and V of 16 tokens, 2 layers of 2 heads of 16.
  EXPECT_NE(text.find("| copy_blocks, 2 of 4,096 bytes | 1000.0 | 0.0 | 1.6 % |"), std::string::npos) << text;
}

TEST(Measurements, OfSampling) { EXPECT_EQ(rows_of(printed(gpu::measure_sampling)), 4U * 2); }

TEST(Measurements, OfSwap) {
  const std::string text = printed(gpu::measure_swap);
  EXPECT_EQ(rows_of(text), 2U * 2) << text;
  // 3 blocks of 2 layers in the millisecond that was made up, over a link that was made up too.
  EXPECT_NE(text.find("| 3 blocks out, 0.0 GB/s | 1000.0 | 0.0 | 122.9 % |"), std::string::npos) << text;
}

TEST(Measurements, OfTheExecutor) {
  const std::string text = printed(gpu::measure_executor);
  EXPECT_EQ(rows_of(text), 2U * 2) << text;
  EXPECT_NE(text.find("| two in flight, 3 x 1 tokens, contexts of 32 | "), std::string::npos) << text;
  EXPECT_EQ(text.find("not measured"), std::string::npos) << text;
}

TEST(Measurements, OfExperts) { EXPECT_EQ(rows_of(printed(gpu::measure_experts)), 5U * 3); }

TEST(Measurements, OfGemms) { EXPECT_EQ(rows_of(printed(gpu::measure_gemms)), 5U * 2 * 3); }

TEST(Measurements, OfSteps) {
  const std::string text = printed(gpu::measure_steps);
  EXPECT_EQ(rows_of(text), 4U * 2 + 2) << text;  // of two decodes as a graph too
  EXPECT_EQ(text.find("not measured"), std::string::npos) << text;
}

/// The memory of the tests on a real device.
TEST(RealRegion, GoesToTheDeviceAndBack) {
  Device fibers(1);
  gpu::Device device(1);
  gpu::Region& in = device.allocate("in", kProbeThreads * sizeof(float));
  gpu::Region& out = device.allocate("out", kProbeThreads * sizeof(float));
  EXPECT_EQ(out.host_data()[5], std::byte{0xff});
  const auto at = [&](uint32_t i) { return reinterpret_cast<const float*>(out.host_data())[i]; };
  for (const float scale : {1.0F, 3.0F}) {
    for (uint32_t i = 0; i < kProbeThreads; ++i) {
      const float value = scale * static_cast<float>(i);
      in.write(i * sizeof(value), &value, sizeof(value));
    }
    probe("fused", in.data(), out.data());
    for (uint32_t i = 0; i < kProbeThreads; ++i) {
      const float value = scale * static_cast<float>(i);
      EXPECT_EQ(at(i), value * value - 1.0F);
    }
    // What the host writes beside what a kernel wrote keeps it.
    const float mark = -7.0F;
    out.write(0, &mark, sizeof(mark));
    out.data();
    EXPECT_EQ(at(0), mark);
    EXPECT_EQ(at(2), scale * scale * 4.0F - 1.0F);
  }
  EXPECT_TRUE(device.findings().empty()) << device.report();
}

TEST(RealDevice, SaysWhatTheDeviceSays) {
  Device fibers(1);
  gpu::Device device(1);
  gpu::Region& out = device.allocate("out", kProbeThreads * sizeof(float));
  probe("fused", out.data() + (1 << 20), out.data());
  ASSERT_EQ(device.findings().size(), 1U);
  EXPECT_NE(device.report().find("probe"), std::string::npos) << device.report();
}

}  // namespace
}  // namespace fibers
}  // namespace quire::test
