#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/dtype.h"
#include "tests/device_on_host/device.h"
#include "tests/device_on_host/ptx_probe.h"

// What the entries of ptx.h mean on the host is what the PTX ISA documents of the instruction.
namespace quire::test::fibers {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The results for the first operands; the other threads get the last one.
template <class Out, class In>
std::vector<Out> results(const char* entry, std::vector<In> operands) {
  const size_t count = operands.size();
  operands.resize(kProbeThreads, operands.back());
  Device device(0);
  DeviceArray<In> in(device, "in", operands);
  DeviceArray<Out> out(device, "out", kProbeThreads);
  probe(entry, in.data(), out.data());
  EXPECT_TRUE(device.findings().empty()) << device.report();
  return {out.values().begin(), out.values().begin() + static_cast<ptrdiff_t>(count)};
}

TEST(Ptx, LoadsAndStoresMoveSixteenBytes) {
  for (const char* entry : {"load_128", "load_readonly_128", "shared_128"}) {
    std::vector<uint32_t> words(kProbeThreads * 4);
    std::iota(words.begin(), words.end(), 1);
    Device device(0, true);
    DeviceArray<uint32_t> in(device, "in", words);
    DeviceArray<uint32_t> out(device, "out", words.size());
    probe(entry, in.data(), out.data());
    EXPECT_TRUE(device.findings().empty()) << device.report();
    const bool swapped = std::string_view(entry) == "shared_128";  // with the neighbour's
    for (size_t i = 0; i < words.size(); ++i) EXPECT_EQ(out.values()[swapped ? i ^ 4 : i], words[i]) << entry;
    // One access of a warp each, of which a device makes four turns.
    EXPECT_EQ(device.traffic().at(entry).global_accesses, 2U);
  }
}

TEST(Ptx, Exp2) {
  const std::vector<float> y =
      results<float, float>("exp2_approx", {0.0F, 3.0F, -1.0F, -kInfinity, kInfinity, -140.0F});
  EXPECT_EQ(y, (std::vector<float>{1.0F, 8.0F, 0.5F, 0.0F, kInfinity, 0.0F}));
}

TEST(Ptx, Rsqrt) {
  const std::vector<float> y = results<float, float>("rsqrt_approx", {4.0F, 0.25F, 2.0F});
  EXPECT_EQ(y[0], 0.5F);
  EXPECT_EQ(y[1], 2.0F);
  EXPECT_NEAR(y[2], std::sqrt(0.5), 1e-7);
}

TEST(Ptx, ConversionsRoundToNearestEven) {
  // Halfway between 1 and the next, and between that and the one after.
  EXPECT_EQ((results<uint16_t, float>("to_bf16", {0x1.01p0F, 0x1.03p0F, kInfinity, -0.0F})),
            (std::vector<uint16_t>{0x3f80, 0x3f82, 0x7f80, 0x8000}));
  EXPECT_EQ((results<uint16_t, float>("to_f16", {0x1.002p0F, 0x1.006p0F, 1e6F, 0x1p-24F})),
            (std::vector<uint16_t>{0x3c00, 0x3c02, 0x7c00, 0x0001}));
  EXPECT_EQ((results<float, uint16_t>("from_f16", {0x3c00, 0x0001, 0xfc00})),
            (std::vector<float>{1.0F, 0x1p-24F, -kInfinity}));
}

}  // namespace
}  // namespace quire::test::fibers
