#include "base/fair_queue.h"

#include <string>

#include <gtest/gtest.h>

namespace quire {
namespace {

std::string order(FairQueue<char>& queue) {
  std::string out;
  while (const auto job = queue.pop()) out += *job;
  return out;
}

TEST(FairQueue, AShortJobGoesBeforeTheLongOnesThatWait) {
  FairQueue<char> queue;
  for (int i = 0; i < 4; ++i) queue.push(1, 100, 'L');
  queue.push(2, 1, 'o');  // of another client
  queue.push(1, 2, 's');  // of the same
  EXPECT_EQ(order(queue), "osLLLL");
}

TEST(FairQueue, ClientsTakeTurns) {
  FairQueue<char> queue;
  for (int i = 0; i < 4; ++i) queue.push(1, 10, 'a');
  for (int i = 0; i < 4; ++i) queue.push(2, 10, 'b');
  queue.push(3, 20, 'c');
  const std::string all = order(queue);
  for (size_t i = 0; i + 2 < all.size(); ++i)
    EXPECT_FALSE(all[i] == all[i + 1] && all[i] == all[i + 2]) << all;
  EXPECT_LT(all.find('c'), 5U) << all;
}

TEST(FairQueue, ALongJobWaitsForNoMoreThanItIsWorth) {
  FairQueue<char> queue;
  queue.push(1, 100, 'L');
  int before = 0;
  for (;; ++before) {
    ASSERT_LT(before, 1000) << "short jobs keep coming";
    queue.push(1, 10, 's');
    if (queue.pop() == 'L') break;
  }
  EXPECT_LE(before, 11);
}

TEST(FairQueue, ASavedTurnIsLost) {
  FairQueue<char> queue;
  for (int i = 0; i < 100; ++i) {
    queue.push(1, 10, 'a');
    queue.pop();
  }
  // The second has done nothing so far and gets no hundred turns in a row for it.
  for (int i = 0; i < 4; ++i) {
    queue.push(1, 10, 'a');
    queue.push(2, 10, 'b');
  }
  EXPECT_LT(order(queue).find('a'), 3U);
}

TEST(FairQueue, WhoMayNotHaveATurnSavesUpNone) {
  FairQueue<char> queue;
  const auto second_alone = [](uint64_t client) { return client == 2; };
  for (int i = 0; i < 20; ++i) {
    queue.push(1, 10, 'a');
    queue.push(2, 10, 'b');
  }
  for (int i = 0; i < 10; ++i) ASSERT_EQ(queue.pop(second_alone), 'b');
  EXPECT_EQ(queue.size(), 30U);
  EXPECT_LT(order(queue).find('b'), 3U);
}

TEST(FairQueue, WhatLeavesIsNotDone) {
  FairQueue<char> queue;
  const auto ticket = queue.push(1, 1, 'a');
  queue.push(1, 1, 'b');
  EXPECT_EQ(queue.remove(1, ticket), 'a');
  EXPECT_EQ(queue.remove(1, ticket), std::nullopt);
  EXPECT_EQ(queue.remove(7, ticket), std::nullopt);
  EXPECT_EQ(queue.size(), 1U);
  EXPECT_EQ(order(queue), "b");
}

TEST(FairQueue, ALongJobHasItsTurnThoughNewClientsKeepComing) {
  FairQueue<char> queue;
  queue.push(1, 100, 'L');
  uint64_t newcomer = 2;
  queue.push(newcomer++, 1, 's');  // the queue is never empty
  int before = 0;
  for (;; ++before) {
    ASSERT_LT(before, 1000) << "it waits for ever";
    queue.push(newcomer++, 1, 's');
    if (queue.pop() == 'L') break;
  }
  EXPECT_LE(before, 2 * 100 + 2) << "two of the others wait at any time";
}

TEST(FairQueue, KeepsNothingOfClientsThatAreGone) {
  FairQueue<char> queue;
  queue.push(1, 1'000'000, 'L');  // the queue is never empty
  for (uint64_t client = 2; client < 10'000; client += 2) {
    queue.push(client, 1, 'a');
    const auto ticket = queue.push(client + 1, 10, 'b');
    ASSERT_EQ(queue.pop(), 'a');
    ASSERT_EQ(queue.remove(client + 1, ticket), 'b');
    ASSERT_EQ(queue.num_clients(), 1U);
  }
  EXPECT_EQ(order(queue), "L");
}

TEST(FairQueue, KeepsNothingOfClientsWhenIdle) {
  FairQueue<char> queue;
  for (uint64_t client = 0; client < 100000; client += 2) {
    queue.push(client, 1, 'a');
    const auto ticket = queue.push(client + 1, 10, 'b');
    ASSERT_EQ(queue.pop(), 'a');
    ASSERT_GT(queue.num_clients(), 0U);
    if (client % 4 == 0) {
      ASSERT_EQ(queue.pop(), 'b');
    } else {
      ASSERT_EQ(queue.remove(client + 1, ticket), 'b');
    }
    ASSERT_EQ(queue.num_clients(), 0U);
  }
}

}  // namespace
}  // namespace quire
