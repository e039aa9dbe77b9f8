// Whose turn it is at the workers.
#include "serve/workers.h"

#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <string>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <gtest/gtest.h>

#include "serve/fair_queue.h"

namespace quire::serve {
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

/// A request whose client may leave.
class FakeExchange final : public Exchange {
 public:
  explicit FakeExchange(uint64_t client) { request_.client = client; }
  const HttpRequest& request() const override { return request_; }
  void drop_body() override {}
  void add_header(std::string, std::string) override {}
  asio::awaitable<void> respond(HttpResponse) override { co_return; }
  asio::awaitable<void> start_stream(std::string_view) override { co_return; }
  asio::awaitable<void> write_stream(std::string_view) override { co_return; }
  bool client_gone() const override { return gone_; }
  void on_client_gone(std::function<void()> hook) override {
    if (no_memory) throw std::bad_alloc();
    hook_ = std::move(hook);
  }
  void cut() override {
    gone_ = true;
    if (hook_) hook_();
  }

  bool no_memory = false;

 private:
  HttpRequest request_;
  bool gone_ = false;
  std::function<void()> hook_;
};

TEST(Workers, DoNotWorkOffWhoseClientIsGone) {
  asio::io_context io;
  Workers workers(1);
  std::promise<void> let_go;
  FakeExchange first(1);
  FakeExchange leaves(2);
  FakeExchange gone(3);
  gone.cut();
  bool worked = false;
  const auto spawn = [&](FakeExchange& exchange, std::function<void()> work) {
    return asio::co_spawn(io, workers.run(exchange, std::move(work)), asio::use_future);
  };
  std::promise<void> begun;
  auto first_done = spawn(first, [&] {
    begun.set_value();
    let_go.get_future().wait();
  });
  auto left = spawn(leaves, [&] { worked = true; });
  auto was_gone = spawn(gone, [&] { worked = true; });
  io.poll();
  begun.get_future().wait();
  leaves.cut();
  io.poll();
  EXPECT_FALSE(left.get());
  EXPECT_FALSE(was_gone.get());
  let_go.set_value();
  io.restart();
  io.run();
  EXPECT_TRUE(first_done.get());
  workers.join();
  EXPECT_FALSE(worked);
}

TEST(Workers, DropWhatCannotBeQueued) {
  asio::io_context io;
  Workers workers(1);
  FakeExchange fails(1);
  fails.no_memory = true;
  FakeExchange next(2);
  bool worked = false;
  auto failed = asio::co_spawn(io, workers.run(fails, [&] { worked = true; }), asio::use_future);
  io.poll();
  EXPECT_THROW(failed.get(), std::bad_alloc);
  io.restart();
  auto done = asio::co_spawn(io, workers.run(next, [] {}), asio::use_future);
  io.run_for(std::chrono::seconds(20));
  EXPECT_EQ(done.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  workers.join();
  EXPECT_FALSE(worked);
}

TEST(Workers, PassOnWhatIsThrown) {
  asio::io_context io;
  Workers workers(1);
  FakeExchange exchange(1);
  auto done = asio::co_spawn(io, workers.run(exchange, [] { throw std::bad_alloc(); }), asio::use_future);
  io.run();
  EXPECT_THROW(done.get(), std::bad_alloc);
  workers.join();
}

TEST(Workers, LetThoseWaitWhoMayNotBegin) {
  asio::io_context io;
  std::atomic<bool> may = false;
  Workers workers(1, [&](uint64_t client) { return client != 1 || may; });
  FakeExchange held(1);
  FakeExchange other(2);
  std::vector<std::future<bool>> waiting;
  std::atomic<int> worked = 0;
  for (int i = 0; i < 3; ++i) {
    waiting.push_back(asio::co_spawn(io, workers.run(held, [&] { ++worked; }), asio::use_future));
  }
  for (int i = 0; i < 3; ++i) {
    auto done = asio::co_spawn(io, workers.run(other, [] {}), asio::use_future);
    while (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      io.restart();
      io.run_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(done.get());
  }
  EXPECT_EQ(worked, 0);
  may = true;
  io.restart();
  io.run();
  for (auto& each : waiting) EXPECT_TRUE(each.get());
  EXPECT_EQ(worked, 3);
  may = false;
  auto left = asio::co_spawn(io, workers.run(held, [&] { ++worked; }), asio::use_future);
  io.restart();
  io.poll();
  workers.join();
  EXPECT_EQ(worked, 3) << "what has not begun never does";
}

}  // namespace
}  // namespace quire::serve
