#include "sim/reception.h"

#include <vector>

#include <gtest/gtest.h>

namespace quire::sim {
namespace {

/// What has been received until nothing is left, and when.
std::vector<std::pair<size_t, Nanos>> drain(Reception& reception) {
  std::vector<std::pair<size_t, Nanos>> out;
  while (const auto next = reception.next()) out.emplace_back(reception.take().request, *next);
  return out;
}

using Received = std::vector<std::pair<size_t, Nanos>>;

TEST(Reception, TakesOneAfterTheOther) {
  Reception reception(10);
  EXPECT_EQ(reception.next(), std::nullopt);
  reception.send({7, 1000}, 0, 100);
  EXPECT_EQ(reception.next(), 1010);
  EXPECT_EQ(reception.take(), (Reception::Sent{7, 1000}));
  EXPECT_EQ(reception.next(), std::nullopt);
  reception.send({8, 1005 + 10}, 0, 100);
  reception.send({9, 1020}, 0, 100);
  EXPECT_EQ(drain(reception), (Received{{8, 1025}, {9, 1035}}));
}

TEST(Reception, KeepsTheOrderOfOrdinaryPromptsAndLetsThemPassLongOnes) {
  Reception reception(10);
  reception.send({0, 0}, 0, 30'000);  // nothing else has arrived yet
  reception.send({1, 0}, 0, 20'000);
  reception.send({2, 0}, 0, 200);
  reception.send({3, 0}, 0, 5'000);
  reception.send({4, 0}, 0, 100);
  EXPECT_EQ(drain(reception), (Received{{0, 10}, {2, 20}, {4, 30}, {3, 40}, {1, 50}}));
}

TEST(Reception, TenantsTakeTurns) {
  Reception reception(10);
  reception.send({0, 0}, 1, 100);
  for (size_t i = 1; i <= 3; ++i) reception.send({i, 0}, 1, 100);
  reception.send({4, 0}, 2, 100);
  const Received all = drain(reception);
  EXPECT_EQ(all[2].first, 4U) << "a tenant's only request behind all of another's";
}

TEST(Reception, KeepsTheOrderWhereItTakesNoTime) {
  Reception reception(0);
  Received all;
  for (size_t i = 0; i < 3; ++i) {
    reception.send({i, 5}, 0, 300 - 100 * i);
    const auto now = drain(reception);
    all.insert(all.end(), now.begin(), now.end());
  }
  EXPECT_EQ(all, (Received{{0, 5}, {1, 5}, {2, 5}}));
}

}  // namespace
}  // namespace quire::sim
