// What the fibers' streams do with code that forgets to order or to wait.
#include <cstring>
#include <functional>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "backend/cuda/runtime.h"
#include "base/error.h"
#include "tests/device_on_host/device.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;

constexpr uint64_t kSeeds = 40;

/// Two streams write the same word, the second after an event of the first if `ordered`; what stays.
uint32_t last_written(uint64_t seed, bool ordered) {
  Device device(seed);
  const cuda::OwnStream first;
  const cuda::OwnStream second;
  const cuda::DeviceBuffer word(sizeof(uint32_t), "a word");
  const uint32_t one = 1;
  const uint32_t two = 2;
  cuda::Event written;
  cuda::copy_to_device(word.data(), &one, sizeof(one), first.get());
  written.record(first.get());
  if (ordered) written.hold(second.get());
  cuda::copy_to_device(word.data(), &two, sizeof(two), second.get());
  cuda::synchronize(first.get());
  cuda::synchronize(second.get());
  uint32_t found = 0;
  cuda::copy_to_host(&found, word.data(), sizeof(found), first.get());
  return found;
}

TEST(Streams, AdvanceInAnyOrder) {
  std::set<uint32_t> found;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) found.insert(last_written(seed, false));
  EXPECT_EQ(found, (std::set<uint32_t>{1, 2}));
}

TEST(Streams, WaitForAnEvent) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) EXPECT_EQ(last_written(seed, true), 2U) << seed;
}

/// Pinned memory is read when the copy is made, which may be after the host has changed it.
TEST(Streams, ReadPinnedMemoryLate) {
  std::set<uint8_t> found;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Device device(seed);
    const cuda::OwnStream stream;
    const cuda::DeviceBuffer target(1, "a byte");
    const cuda::PinnedBuffer pinned(1, "a byte");
    std::memset(pinned.data(), 1, 1);
    cuda::copy_to_device(target.data(), pinned.data(), 1, stream.get());
    std::memset(pinned.data(), 2, 1);
    uint8_t byte = 0;
    cuda::copy_to_host(&byte, target.data(), 1, stream.get());
    found.insert(byte);
  }
  EXPECT_EQ(found, (std::set<uint8_t>{1, 2}));
}

/// What is recorded is done when it is given, in the stream's order, as often as it is given.
TEST(Streams, KeepWhatIsRecorded) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Device device(seed);
    const cuda::OwnStream stream;
    const cuda::DeviceBuffer numbers(3, "three bytes");
    const uint8_t first[] = {1, 2, 3};
    const auto move = [&](size_t to, size_t from) {
      cuda::copy_on_device(numbers.data() + to, numbers.data() + from, 1, stream.get());
    };
    const auto found = [&] {
      std::string out(3, 0);
      cuda::copy_to_host(out.data(), numbers.data(), 3, stream.get());
      return out;
    };
    cuda::copy_to_device(numbers.data(), first, 3, stream.get());
    const cuda::Graph rotation(stream.get(), [&] { move(0, 1), move(1, 2); });
    EXPECT_EQ(found(), "\1\2\3");
    rotation.launch(stream.get());
    move(2, 0);
    EXPECT_EQ(found(), "\2\3\2");
    rotation.launch(stream.get());
    rotation.launch(stream.get());
    EXPECT_EQ(found(), "\2\2\2");
    EXPECT_EQ(device.streams().repeats(), 3U);
  }
}

TEST(Streams, RefuseWhatIsNotToBeRecorded) {
  Device device(1);
  const cuda::OwnStream stream;
  const cuda::DeviceBuffer memory(1, "a byte");
  cuda::Event event;
  uint8_t byte = 1;
  const std::function<void()> refused[] = {
      [&] { cuda::synchronize(stream.get()); },
      [&] { event.record(stream.get()); },
      [&] { event.hold(stream.get()); },
      [&] { event.wait(); },
      [&] { cuda::copy_to_device(memory.data(), &byte, 1, stream.get()); },
      [&] { cuda::copy_to_host(&byte, memory.data(), 1, stream.get()); },
      [&] { const cuda::DeviceBuffer more(1, "more"); },
      [&] { const cuda::PinnedBuffer more(1, "more"); },
      [&] { const cuda::Graph inner(stream.get(), [] {}); },
  };
  for (size_t i = 0; i < std::size(refused); ++i) {
    EXPECT_THROW(cuda::Graph(stream.get(), refused[i]), std::exception) << i;
    cuda::clear(memory.data(), 1, stream.get());
    cuda::synchronize(stream.get());  // as if nothing had been recorded
  }
  EXPECT_THROW(cuda::Graph(nullptr, [] {}), std::exception);
}

TEST(Streams, SayThatTheirWorkFailed) {
  Device device(1);
  const cuda::OwnStream stream;
  const cuda::DeviceBuffer target(1, "a byte");
  const uint8_t byte = 1;
  cuda::Event done;
  device.streams().fail_after(1);
  cuda::copy_to_device(target.data(), &byte, 1, stream.get());
  done.record(stream.get());
  try {
    done.wait();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "CUDA: the work of a stream: an error that the test wants");
  }
}

TEST(Streams, FindThatTheyWaitForEachOther) {
  Device device(1);
  const cuda::OwnStream first;
  Streams& streams = device.streams();
  const uint64_t place = streams.record(first.get()) + 1;
  streams.hold(first.get(), place);
  const uint64_t behind = streams.record(first.get());
  ASSERT_EQ(behind, place);
  EXPECT_THROW(streams.run_to(behind), std::logic_error);
}

}  // namespace
}  // namespace quire::test::fibers
