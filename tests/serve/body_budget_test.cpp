#include "serve/body_budget.h"

#include <memory>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace quire::serve {
namespace {

using namespace std::chrono_literals;
using test::kMiB;

class Budget : public testing::Test {
 protected:
  struct Body {
    Body(BodyBudget& budget, uint64_t client) : claim(budget, [this] { ++asked_to_go; }) {
      claim.begin(client);
    }
    int asked_to_go = 0;
    BodyBudget::Claim claim;
  };

  std::unique_ptr<Body> body(uint64_t client) { return std::make_unique<Body>(budget_, client); }

  BodyBudget::Clock::time_point now_{};
  BodyBudget budget_{64 * kMiB, [this] { return now_; }};
};

TEST_F(Budget, HoldsNoMoreThanItsBytes) {
  std::vector<std::unique_ptr<Body>> bodies;
  uint32_t taken = 0;
  for (uint64_t client = 0; client < 10; ++client) {
    bodies.push_back(body(client));
    taken += bodies.back()->claim.grow_to(16 * kMiB) ? 1 : 0;
    EXPECT_LE(budget_.used(), budget_.max_bytes());
  }
  EXPECT_EQ(taken, 4U);
  bodies[0].reset();
  EXPECT_EQ(budget_.used(), 48 * kMiB);
  EXPECT_TRUE(bodies[9]->claim.grow_to(16 * kMiB));
  bodies.clear();
  EXPECT_EQ(budget_.used(), 0U);
}

TEST_F(Budget, SmallBodiesAreNotCounted) {
  const auto first = body(1);
  EXPECT_TRUE(first->claim.grow_to(64 * kMiB));
  const auto small = body(2);
  EXPECT_TRUE(small->claim.grow_to(BodyBudget::kUncounted));
  EXPECT_FALSE(small->claim.grow_to(BodyBudget::kUncounted + 1));
}

TEST_F(Budget, ABodyThatCannotMakeWayStillCounts) {
  BodyBudget::Claim stays(budget_, [] { throw std::bad_alloc(); });
  stays.begin(1);
  EXPECT_TRUE(stays.grow_to(40 * kMiB));
  now_ += 100s;
  const auto asks = body(2);
  EXPECT_THROW(asks->claim.grow_to(30 * kMiB), std::bad_alloc);
  EXPECT_EQ(budget_.used(), 40 * kMiB);
  EXPECT_TRUE(stays.grow_to(41 * kMiB));
  stays.release();
  EXPECT_TRUE(asks->claim.grow_to(30 * kMiB));
  EXPECT_EQ(budget_.used(), 30 * kMiB);
}

TEST_F(Budget, OneBodyMayHaveItAllAndManyOfAClientHalf) {
  const auto whole = body(1);
  EXPECT_TRUE(whole->claim.grow_to(64 * kMiB));
  whole->claim.release();
  std::vector<std::unique_ptr<Body>> many;
  for (int i = 0; i < 5; ++i) many.push_back(body(1));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(many[i]->claim.grow_to(8 * kMiB));
  EXPECT_FALSE(many[4]->claim.grow_to(8 * kMiB));
  const auto other = body(2);
  EXPECT_TRUE(other->claim.grow_to(32 * kMiB)) << "the other half is for others";
}

TEST_F(Budget, ASlowBodyMakesWayAndAQuickOneDoesNot) {
  std::vector<std::unique_ptr<Body>> bodies;
  for (uint64_t client = 0; client < 4; ++client) {
    bodies.push_back(body(client));
    ASSERT_TRUE(bodies.back()->claim.grow_to((client == 2 ? 17 : 15) * kMiB));
  }
  const auto newcomer = body(9);
  EXPECT_FALSE(newcomer->claim.grow_to(16 * kMiB)) << "all are as quick as can be";
  now_ += 2s;
  for (const auto& each : bodies) each->claim.progress();
  EXPECT_FALSE(newcomer->claim.grow_to(16 * kMiB)) << "all still come";
  bodies[2]->claim.settle();
  now_ += 2s;
  EXPECT_TRUE(newcomer->claim.grow_to(14 * kMiB)) << "nothing has come for two seconds";
  EXPECT_EQ(bodies[2]->asked_to_go, 0) << "that one is whole";
  EXPECT_EQ(bodies[0]->asked_to_go + bodies[1]->asked_to_go + bodies[3]->asked_to_go, 1);
  for (const auto& each : bodies) {
    const bool grows = each->asked_to_go > 0 && each->claim.grow_to(20 * kMiB);
    EXPECT_FALSE(grows) << "who has made way does not come back";
  }
  EXPECT_LE(budget_.used(), budget_.max_bytes());
}

TEST_F(Budget, TheClientThatHoldsTheMostMakesWay) {
  std::vector<std::unique_ptr<Body>> flood;
  for (int i = 0; i < 4; ++i) {
    flood.push_back(body(1));
    ASSERT_TRUE(flood.back()->claim.grow_to(8 * kMiB));
  }
  const auto large = body(2);
  ASSERT_TRUE(large->claim.grow_to(31 * kMiB));
  now_ += 60s;
  const auto newcomer = body(3);
  EXPECT_TRUE(newcomer->claim.grow_to(4 * kMiB));
  EXPECT_EQ(large->asked_to_go, 0);
  EXPECT_EQ(flood[0]->asked_to_go + flood[1]->asked_to_go + flood[2]->asked_to_go + flood[3]->asked_to_go, 1);
}

}  // namespace
}  // namespace quire::serve
