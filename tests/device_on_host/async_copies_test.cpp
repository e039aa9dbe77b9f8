#include "tests/device_on_host/async_copies.h"

#include <cstring>

#include <gtest/gtest.h>

namespace quire::test::fibers {
namespace {

constexpr uint32_t kBytes = 16;
constexpr size_t kCopies = 3;

class Copying {
 public:
  explicit Copying(uint64_t seed) : rng_(seed) {
    std::memset(from_.data(), 7, kBytes);
    std::memset(shared_.data(), 0, kCopies * kBytes);
    copies_.enter_block(shared_, 1);
  }
  void begin(size_t which = 0) {
    copies_.begin({.to = shared_.data() + which * kBytes, .from = from_.data(), .bytes = kBytes}, rng_);
  }
  void commit() { copies_.commit(0, rng_); }
  size_t wait(uint32_t but) { return copies_.wait(0, but).size(); }
  bool has_landed(size_t which = 0) const { return shared_.host_data()[which * kBytes] == std::byte{7}; }
  bool is_under_way(size_t which) const {
    return copies_.are_under_way(shared_.begin() + which * kBytes, kBytes);
  }
  size_t rest() const { return copies_.rest().size(); }

 private:
  Region from_{"from", RegionKind::kGlobal, kBytes};
  Region shared_{"shared memory", RegionKind::kShared, kCopies* kBytes};
  AsyncCopies copies_;
  SplitMix64 rng_;
};

TEST(AsyncCopies, LandAtAMomentThatTheSeedDraws) {
  constexpr uint32_t kSeeds = 40;
  uint32_t at_once = 0;
  uint32_t when_committed = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Copying copying(seed);
    copying.begin();
    at_once += copying.has_landed() ? 1 : 0;
    copying.commit();
    when_committed += copying.has_landed() ? 1 : 0;
    EXPECT_EQ(copying.wait(0), 1U);
    EXPECT_TRUE(copying.has_landed());
  }
  EXPECT_GT(at_once, 0U);
  EXPECT_GT(when_committed, at_once);
  EXPECT_LT(when_committed, kSeeds);
}

TEST(AsyncCopies, AreUnderWayUntilTheirGroupIsWaitedFor) {
  Copying copying(1);
  for (size_t which = 0; which < kCopies; ++which) {
    copying.begin(which);
    if (which + 1 < kCopies) copying.commit();
  }
  EXPECT_EQ(copying.wait(1), 1U);
  EXPECT_FALSE(copying.is_under_way(0));
  EXPECT_TRUE(copying.is_under_way(1));
  EXPECT_EQ(copying.wait(0), 1U);
  EXPECT_FALSE(copying.is_under_way(1));
  EXPECT_TRUE(copying.is_under_way(2));  // nobody has committed it
  EXPECT_EQ(copying.rest(), 1U);
}

}  // namespace
}  // namespace quire::test::fibers
