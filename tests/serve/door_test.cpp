// Failures inside of the server: none may end more than the connection that it befalls.
#include "serve/door.h"

#include <atomic>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/serve/http_client.h"

namespace quire::serve {
namespace {

using test::Answer;
using test::HttpClient;
using testing::HasSubstr;

/// Throws where the path says so.
class FailingHandler final : public RequestHandler {
 public:
  std::optional<HttpResponse> settle_early(HttpRequest& request) const override {
    if (request.path == "/early") throw std::bad_alloc();
    if (request.path == "/early-error") throw std::runtime_error("broken");
    return std::nullopt;
  }
  bool is_vital(const HttpRequest&) const override { return false; }
  asio::awaitable<void> handle(Exchange& exchange) override {
    const std::string& path = exchange.request().path;
    if (path == "/memory") throw std::bad_alloc();
    if (path == "/error") throw std::runtime_error("filesystem error: broken");
    if (path == "/stream") {
      co_await exchange.start_stream("text/plain");
      co_await exchange.write_stream("half");
      throw std::bad_alloc();
    }
    HttpResponse good{.body = "good"};
    co_await exchange.respond(std::move(good));
  }
};

/// A door alone, with its threads. `fail_next`: so many connections cannot be made.
class OpenDoor {
 public:
  OpenDoor()
      : work_(io_.get_executor()),
        door_(io_, config_, [this](asio::ip::tcp::socket socket, uint64_t address, Connection::Hooks hooks) {
          if (fail_next > 0) {
            --fail_next;
            throw std::bad_alloc();
          }
          return std::make_shared<Connection>(std::move(socket), config_, handler_, bodies_, address,
                                              std::move(hooks));
        }) {
    set_log_level(LogLevel::kOff);
    config_.port = 0;
    door_.listen();
    door_.open();
    for (int i = 0; i < 2; ++i) threads_.emplace_back([this] { io_.run(); });
  }
  ~OpenDoor() {
    door_.close();
    door_.cut_all();
    door_.wait_until_empty();
    work_.reset();
    io_.stop();
    for (std::thread& thread : threads_) thread.join();
    set_log_level(LogLevel::kInfo);
  }

  uint16_t port() const { return door_.port(); }
  Door& door() { return door_; }

  std::atomic<int> fail_next = 0;

 private:
  ServerConfig config_;
  FailingHandler handler_;
  BodyBudget bodies_{256 << 20};
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  Door door_;
  std::vector<std::thread> threads_;
};

Peer peer_at(const char* address, uint16_t port) { return peer_of({asio::ip::make_address(address), port}); }

TEST(Peers, AreOneClientByAddressAndOfIpv6ByNetwork) {
  EXPECT_EQ(peer_at("192.0.2.7", 4000).address, peer_at("192.0.2.7", 4001).address);
  EXPECT_NE(peer_at("192.0.2.7", 4000).address, peer_at("192.0.2.8", 4000).address);
  EXPECT_EQ(peer_at("192.0.2.7", 4000).address, peer_at("::ffff:192.0.2.7", 4000).address);
  EXPECT_EQ(peer_at("2001:db8:1:2::7", 4000).address, peer_at("2001:db8:1:2:ffff:1:2:3", 4001).address);
  EXPECT_NE(peer_at("2001:db8:1:2::7", 4000).address, peer_at("2001:db8:1:3::7", 4000).address);
  EXPECT_NE(peer_at("2001:db8:1:2::7", 4000).address, peer_at("2001:db9:1:2::7", 4000).address);
  for (const char* local : {"127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(peer_at(local, 4000).is_local) << local;
  }
  for (const char* other : {"192.0.2.7", "2001:db8::1", "::ffff:192.0.2.7"}) {
    EXPECT_FALSE(peer_at(other, 4000).is_local) << other;
  }
}

TEST(Failures, AHandlerThatFailsEndsItsRequestAlone) {
  OpenDoor door;
  HttpClient other(door.port());
  EXPECT_EQ(other.get("/").body, "good");
  for (int i = 0; i < 3; ++i) {
    HttpClient client(door.port());
    const Answer memory = client.get("/memory");
    EXPECT_EQ(memory.status, 503);
    EXPECT_EQ(memory.headers.at("retry-after"), "1");
    EXPECT_EQ(memory.body.find("bad_alloc"), std::string::npos);
    HttpClient second(door.port());
    const Answer error = second.get("/error");
    EXPECT_EQ(error.status, 500);
    EXPECT_EQ(error.body.find("filesystem"), std::string::npos);
    EXPECT_EQ(second.get("/").body, "good") << "the connection is as good as before";
    HttpClient third(door.port());
    const Answer half = third.get("/stream");
    EXPECT_EQ(half.status, 200);
    EXPECT_FALSE(half.complete) << "nobody takes half an answer for a whole one";
  }
  EXPECT_EQ(other.get("/").body, "good");
}

TEST(Failures, ARequestThatCannotBeReadEndsAlone) {
  OpenDoor door;
  HttpClient client(door.port());
  EXPECT_EQ(client.get("/early").status, 503);
  EXPECT_TRUE(client.closed_by_server());
  HttpClient second(door.port());
  second.get("/early-error");
  EXPECT_TRUE(second.closed_by_server());
  EXPECT_EQ(HttpClient(door.port()).get("/").body, "good");
}

TEST(Failures, AcceptingGoesOnWhenAConnectionCannotBeMade) {
  OpenDoor door;
  for (int i = 0; i < 3; ++i) {
    door.fail_next = 2;
    for (int k = 0; k < 2; ++k) EXPECT_TRUE(HttpClient(door.port()).closed_by_server());
    EXPECT_EQ(HttpClient(door.port()).get("/").body, "good");
  }
  EXPECT_EQ(door.fail_next, 0);
  EXPECT_TRUE(door.door().wait_until_empty(std::chrono::seconds(20))) << "nobody is left over";
}

TEST(Failures, AreLoggedInPlainWords) {
  OpenDoor door;
  set_log_level(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  door.fail_next = 1;
  EXPECT_TRUE(HttpClient(door.port()).closed_by_server());
  HttpClient(door.port()).get("/early-error");
  HttpClient(door.port()).get("/error");
  EXPECT_EQ(HttpClient(door.port()).get("/").body, "good");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("accepting a connection: out of memory"));
  EXPECT_THAT(said, testing::Not(HasSubstr("std::")));
}

}  // namespace
}  // namespace quire::serve
