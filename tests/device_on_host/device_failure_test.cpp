// What becomes of a device's failure.
#include <gtest/gtest.h>

#include "base/error.h"
#include "control/scheduler.h"
#include "tests/device_on_host/device_executor.h"
#include "tests/support/data.h"

namespace quire::test::fibers {
namespace {

TEST(DeviceExecutor, SaysWhichWorkOfTheDeviceFailed) {
  QUIRE_NEEDS_DATA("golden-models/qwen3");
  Device device(2);
  const MakeExecutor make = on_device(data_dir() / "golden-models/qwen3", DType::kBF16);
  const auto executor = make(16, 4, 0);
  control::SchedulerConfig config{.num_blocks = 16, .block_size = kBlockSize, .max_num_seqs = 4};
  config.max_model_len = 128;
  control::Scheduler scheduler(config);
  ASSERT_TRUE(scheduler.add(mixed_requests(512, 1, 8)[0]));
  device.streams().fail_after(9);
  try {
    executor->wait(executor->submit(scheduler.plan()));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "CUDA: the work of a stream: an error that the test wants");
  }
}

}  // namespace
}  // namespace quire::test::fibers
