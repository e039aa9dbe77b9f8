// Whose turn it is at the workers.
#include "serve/workers.h"

#include <atomic>
#include <chrono>
#include <future>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <gtest/gtest.h>

namespace quire::serve {
namespace {

/// A request whose client may leave.
class FakeExchange final : public Exchange {
 public:
  explicit FakeExchange(uint64_t client, size_t bytes = 0) {
    request_.client = client;
    request_.body.resize(bytes);
  }
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

// Otherwise the order of a burst would be that of its lengths under every scheduling policy.
TEST(Workers, TakeOrdinaryBodiesInTheirOrderAndBeforeLongOnes) {
  asio::io_context io;
  Workers workers(1);
  const size_t bytes[] = {0, 10 * Workers::kOrdinaryBody, 9000, 2 * Workers::kOrdinaryBody, 100, 5000};
  std::vector<std::unique_ptr<FakeExchange>> exchanges;
  std::vector<std::future<bool>> done;
  std::promise<void> begun;
  std::promise<void> let_go;
  std::vector<size_t> order;  // the only worker's
  for (size_t i = 0; i < std::size(bytes); ++i) {
    exchanges.push_back(std::make_unique<FakeExchange>(1, bytes[i]));
    done.push_back(asio::co_spawn(io,
                                  workers.run(*exchanges[i],
                                              [&, i] {
                                                if (i == 0) {
                                                  begun.set_value();
                                                  let_go.get_future().wait();
                                                }
                                                order.push_back(i);
                                              }),
                                  asio::use_future));
    io.poll();
    if (i == 0) begun.get_future().wait();
  }
  let_go.set_value();
  io.restart();
  io.run();
  for (auto& each : done) EXPECT_TRUE(each.get());
  workers.join();
  EXPECT_EQ(order, (std::vector<size_t>{0, 2, 4, 5, 3, 1}));
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
