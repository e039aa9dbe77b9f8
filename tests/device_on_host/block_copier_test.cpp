// Blocks that are copied before they are written, many at once.
#include "backend/cuda/block_copier.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "model/config.h"
#include "tests/device_on_host/target.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;
using Copies = std::vector<control::BlockCopy>;

constexpr uint32_t kBlocks = 7;
constexpr uint32_t kBlockSize = 16;
constexpr uint32_t kMost = 4;

/// Blocks with bytes of chance, and what must be in them.
class Blocks {
 public:
  Blocks(const model::ModelConfig& config, uint64_t seed)
      : cache_(config, DType::kBF16, kBlocks, kBlockSize),
        copier_(cache_, kMost),
        expected_(cache_.memory().size()) {
    SplitMix64 rng(seed);
    for (std::byte& value : expected_) value = static_cast<std::byte>(rng.below(256));
    cuda::copy_to_device(cache_.memory().data(), expected_.data(), expected_.size(), stream_.get());
  }

  void copy(const Copies& copies) {
    copier_.copy(copies, stream_.get());
    for (const control::BlockCopy& copy : copies) {
      cache_.for_each_part(copy.from, [&](const std::byte* part, size_t bytes) {
        const auto from = expected_.begin() + (part - cache_.memory().data());
        const auto blocks = static_cast<ptrdiff_t>(copy.to) - static_cast<ptrdiff_t>(copy.from);
        std::copy_n(from, bytes, from + blocks * static_cast<ptrdiff_t>(bytes));
      });
    }
  }

  void expect_as_copied() const {
    std::vector<std::byte> found(expected_.size());
    cuda::copy_to_host(found.data(), cache_.memory().data(), found.size(), stream_.get());
    cuda::synchronize(stream_.get());
    EXPECT_TRUE(found == expected_);
  }

 private:
  cuda::OwnStream stream_;
  cuda::KvCache cache_;
  cuda::BlockCopier copier_;
  std::vector<std::byte> expected_;
};

/// With so many layers that see all, and so many that see 16 tokens.
model::ModelConfig config_of(uint32_t all, uint32_t few) {
  model::ModelConfig config;
  config.max_positions = 1000;
  config.num_kv_heads = 1;
  config.head_dim = 64;
  config.num_layers = all + few;
  config.windows.assign(all, 0);
  config.windows.insert(config.windows.end(), few, 16);
  return config;
}
/// Of one K/V group of three layers, and of seven, of which the last has only one.
std::vector<model::ModelConfig> configs() { return {config_of(3, 0), config_of(9, 10)}; }

/// Lists without an order of their own, and such as a plan has whose blocks are evicted and taken again;
/// more at once than there are pieces of pinned memory.
TEST(BlockCopier, CopiesAsIfOneAfterTheOther) {
  for (const model::ModelConfig& config : configs()) {
    for (uint64_t seed = 0; seed < kOrders; ++seed) {
      SCOPED_TRACE(std::to_string(config.num_layers) + " layers, order " + std::to_string(seed));
      Device device(seed);
      Blocks blocks(config, seed);
      SplitMix64 rng(seed);
      for (int list = 0; list < 5; ++list) {
        Copies copies(rng.below(2 * kMost + 1));
        for (auto& [from, to] : copies) {
          from = static_cast<BlockId>(rng.below(kBlocks));
          to = (from + 1 + static_cast<BlockId>(rng.below(kBlocks - 1))) % kBlocks;
        }
        blocks.copy(copies);
      }
      blocks.expect_as_copied();
      ASSERT_TRUE(device.findings().empty()) << device.report();
    }
  }
}

#ifndef QUIRE_REAL_DEVICE
TEST(BlockCopier, LaunchesOnceWhereItCan) {
  struct Case {
    uint32_t launches;
    Copies copies;
  };
  const Case cases[] = {
      {0, {}},
      {1, {{5, 0}, {2, 6}, {5, 3}, {2, 1}}},
      {2, {{0, 1}, {2, 0}}},                          // writes what the first reads
      {2, {{0, 1}, {1, 2}}},                          // reads what the first writes
      {2, {{0, 1}, {2, 1}}},                          // writes what the first writes
      {2, {{0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}}},  // more than kMost
  };
  for (const model::ModelConfig& config : configs()) {
    for (const Case& one : cases) {
      Device device(1);
      Blocks blocks(config, 1);
      blocks.copy(one.copies);
      blocks.expect_as_copied();
      EXPECT_EQ(device.launches(), one.launches) << config.num_layers << " layers";
    }
  }
}
#endif

}  // namespace
}  // namespace quire::test::fibers
