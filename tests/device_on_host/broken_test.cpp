#include "tests/device_on_host/broken.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/runtime.h"
#include "base/error.h"
#include "tests/device_on_host/support.h"

namespace quire::test::fibers {
namespace {

struct Defect {
  const char* name;
  void (*kernel)(const BrokenArgs& args);
  Checker checker;
};

const Defect kDefects[] = {
    {"off_by_one", off_by_one, Checker::kBounds},
    {"misaligned_load", misaligned_load, Checker::kAlignment},
    {"missing_barrier", missing_barrier, Checker::kRace},
    {"missing_warp_barrier", missing_warp_barrier, Checker::kRace},
    {"race_of_blocks", race_of_blocks, Checker::kRace},
    {"divergent_barrier", divergent_barrier, Checker::kBarrier},
    {"two_barriers", two_barriers, Checker::kBarrier},
    {"stale_constant", stale_constant, Checker::kConstant},
    {"missing_lane", missing_lane, Checker::kLane},
    {"foreign_lane", foreign_lane, Checker::kLane},
    {"uninitialised_shared", uninitialised_shared, Checker::kUninitialised},
    {"unawaited_copy", unawaited_copy, Checker::kUnderWay},
    {"overwritten_stage", overwritten_stage, Checker::kRace},
    {"misaligned_copy", misaligned_copy, Checker::kAlignment},
    {"copy_of_twelve_bytes", copy_of_twelve_bytes, Checker::kAlignment},
    {"uninitialised_copy", uninitialised_copy, Checker::kUninitialised},
    {"uninitialised_after_copy", uninitialised_after_copy, Checker::kUninitialised},
    {"copy_outside_of_global", copy_outside_of_global, Checker::kBounds},
    {"copy_to_global", copy_to_global, Checker::kBounds},
    {"ended_before_its_turn", ended_before_its_turn, Checker::kEarly},
    {"written_before_its_turn", written_before_its_turn, Checker::kEarly},
    {"read_before_its_turn", read_before_its_turn, Checker::kEarly},
    {"bank_conflict", bank_conflict, Checker::kBankConflicts},
    {"uncoalesced", uncoalesced, Checker::kUncoalesced},
};

class BrokenKernel : public testing::TestWithParam<Defect> {
 protected:
  static std::vector<Finding> run(uint64_t seed, bool broken) {
    Device device(seed, true);
    DeviceArray<float> in(device, "in", std::vector<float>(kBrokenCount, 1.0F));
    DeviceArray<float> out(device, "out", kBrokenCount);
    GetParam().kernel({in.data(), out.data(), broken});
    return device.findings();
  }
};

TEST_P(BrokenKernel, IsFoundInEveryOrder) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<Finding> findings = run(seed, true);
    ASSERT_FALSE(findings.empty()) << "seed " << seed;
    for (const Finding& finding : findings) {
      // A race may read before anybody has written.
      const bool follows = GetParam().checker == Checker::kRace && finding.checker == Checker::kUninitialised;
      EXPECT_TRUE(finding.checker == GetParam().checker || follows) << finding.text;
      EXPECT_EQ(finding.kernel, GetParam().name);
      EXPECT_LT(finding.thread, kBrokenCount);
    }
    const auto is_it = [](const Finding& finding) { return finding.checker == GetParam().checker; };
    EXPECT_TRUE(std::any_of(findings.begin(), findings.end(), is_it)) << findings[0].text;
  }
}

TEST_P(BrokenKernel, NamesTheSourceOfTheDefect) {
  const Finding finding = run(1, true).at(0);
  EXPECT_EQ(finding.source.rfind("broken.cu:", 0), 0U) << finding.text;
}

TEST_P(BrokenKernel, MendedHasNoFinding) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<Finding> findings = run(seed, false);
    EXPECT_TRUE(findings.empty()) << findings[0].text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BrokenKernel, testing::ValuesIn(kDefects),
                         [](const testing::TestParamInfo<Defect>& defect) { return defect.param.name; });

/// What a copy writes on a stream may be read early once the host has waited for it, or for a place behind
/// it.
TEST(DeviceOnHost, LetsAKernelReadEarlyWhatTheHostHasWaitedFor) {
  enum class Waits : uint8_t { kNot, kForTheStream, kForAPlaceBefore, kForAPlaceBehind };
  for (uint64_t seed = 0; seed < 80; ++seed) {
    const auto waits = static_cast<Waits>(seed % 4);
    Device device(seed);
    const backend::cuda::OwnStream stream;
    backend::cuda::PinnedBuffer values(kBrokenCount * sizeof(float), "values");
    std::memset(values.data(), 0, values.size());
    DeviceArray<float> in(device, "in", kBrokenCount);
    DeviceArray<float> out(device, "out", kBrokenCount);
    backend::cuda::Event before;
    backend::cuda::Event behind;
    before.record(stream.get());
    backend::cuda::copy_to_device(in.data(), values.data(), values.size(), stream.get());
    behind.record(stream.get());
    if (waits == Waits::kForTheStream) backend::cuda::synchronize(stream.get());
    if (waits == Waits::kForAPlaceBefore) before.wait();
    if (waits == Waits::kForAPlaceBehind) behind.wait();
    read_early({in.data(), out.data(), true}, stream.get());
    const bool may = waits == Waits::kForTheStream || waits == Waits::kForAPlaceBehind;
    if (may) {
      backend::cuda::synchronize(stream.get());
    } else {
      EXPECT_THROW(backend::cuda::synchronize(stream.get()), Error);
    }
    ASSERT_EQ(device.findings().size(), may ? 0U : 1U) << device.report();
    for (const Finding& finding : device.findings()) EXPECT_EQ(finding.checker, Checker::kEarly);
  }
}

TEST(DeviceOnHost, RefusesALaunchThatNoDeviceTakes) {
  Device device(0);
  EXPECT_NE(backend::cuda::host::launch(
                "too_wide", {.grid = {1}, .threads = 2048}, [](const void*) {}, nullptr, 0),
            0);
  ASSERT_EQ(device.findings().size(), 1U);
  EXPECT_EQ(device.findings()[0].checker, Checker::kLaunch);
}

}  // namespace
}  // namespace quire::test::fibers
