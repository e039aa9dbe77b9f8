#include "serve/mailbox.h"

#include <new>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::serve {
namespace {

using testing::ElementsAre;

engine::RequestOutput piece(std::string text) {
  engine::RequestOutput out;
  out.choices.push_back({.text = std::move(text), .tokens = {SampledToken{}}});
  return out;
}

/// Refuses the next `failures` of what is posted.
struct FailingExecutor {
  asio::io_context* io;
  int* failures;

  asio::execution_context& query(asio::execution::context_t) const noexcept { return *io; }
  static constexpr asio::execution::blocking_t query(asio::execution::blocking_t) noexcept {
    return asio::execution::blocking.never;
  }
  FailingExecutor require(asio::execution::blocking_t::never_t) const noexcept { return *this; }
  template <class Function>
  void execute(Function&& function) const {
    if (*failures > 0) {
      --*failures;
      throw std::bad_alloc();
    }
    asio::post(*io, std::forward<Function>(function));
  }
  bool operator==(const FailingExecutor&) const noexcept = default;
};

class MailboxTest : public testing::Test {
 protected:
  std::shared_ptr<Mailbox> make(uint64_t max_bytes = 0) {
    return std::make_shared<Mailbox>(io_.get_executor(), max_bytes, [this] { ++overflows_; });
  }
  /// What a connection takes at once, as "prompt:text".
  std::vector<std::string> take(Mailbox& mailbox) {
    std::vector<std::string> out;
    const auto read = [&]() -> asio::awaitable<void> {
      const auto news = co_await mailbox.take();
      for (const Mailbox::News& item : news) {
        out.push_back(std::to_string(item.prompt) + ":" + item.output.choices.front().text);
      }
    };
    asio::co_spawn(io_, read(), asio::detached);
    io_.restart();
    io_.run();
    return out;
  }

  asio::io_context io_;
  int overflows_ = 0;
};

TEST_F(MailboxTest, WhatPilesUpIsTakenAtOnceAndStaysApart) {
  const auto mailbox = make();
  mailbox->put(0, piece("a"));
  mailbox->put(1, piece("b"));
  mailbox->put(0, piece("c"));
  mailbox->put(0, piece("d"));
  EXPECT_THAT(take(*mailbox), ElementsAre("0:a", "1:b", "0:c", "0:d"));
  mailbox->put(1, piece("e"));
  EXPECT_THAT(take(*mailbox), ElementsAre("1:e"));
  mailbox->close();
}

TEST_F(MailboxTest, MoreThanItsBoundIsDropped) {
  const auto mailbox = make(2000);
  for (int i = 0; i < 100; ++i) mailbox->put(0, piece("abc"));
  io_.run();
  EXPECT_EQ(overflows_, 1);
  mailbox->close();
}

TEST_F(MailboxTest, AWakeUpThatFailsIsFollowedByTheNext) {
  int failures = 0;
  const auto mailbox =
      std::make_shared<Mailbox>(FailingExecutor{&io_, &failures}, 0, [this] { ++overflows_; });
  std::vector<std::string> taken;
  const auto read = [&]() -> asio::awaitable<void> {
    for (const Mailbox::News& item : co_await mailbox->take()) {
      taken.push_back(item.output.choices.front().text);
    }
  };
  asio::co_spawn(io_, read(), asio::detached);
  io_.poll();
  failures = 1;
  EXPECT_THROW(mailbox->put(0, piece("a")), std::bad_alloc);
  mailbox->put(0, piece("b"));
  io_.restart();
  io_.poll();
  EXPECT_THAT(taken, ElementsAre("b")) << "what was refused is told in another way";
  mailbox->close();
  io_.restart();
  io_.poll();
}

TEST_F(MailboxTest, AnOverflowThatCannotBeToldIsToldNext) {
  int failures = 1;
  const auto mailbox =
      std::make_shared<Mailbox>(FailingExecutor{&io_, &failures}, 1, [this] { ++overflows_; });
  EXPECT_THROW(mailbox->put(0, piece("abc")), std::bad_alloc);
  mailbox->put(0, piece("abc"));
  mailbox->put(0, piece("abc"));
  io_.poll();
  EXPECT_EQ(overflows_, 1);
  mailbox->close();
}

}  // namespace
}  // namespace quire::serve
