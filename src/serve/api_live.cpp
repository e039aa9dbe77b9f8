// The part of Api that shows what the scheduler does, while it does it.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "serve/api.h"

namespace quire::serve {
namespace {

constexpr std::chrono::milliseconds kPause{50};

/// A reader for as long as its connection is served.
class Seat {
 public:
  explicit Seat(std::shared_ptr<engine::LiveFeed::Reader> reader) : reader_(std::move(reader)) {}
  ~Seat() {
    if (reader_ != nullptr) reader_->leave();
  }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;
  bool taken() const { return reader_ != nullptr; }
  std::string take() { return reader_->take(); }

 private:
  std::shared_ptr<engine::LiveFeed::Reader> reader_;
};

HttpResponse refusal(unsigned status, std::string_view message, std::string_view code) {
  return {.status = status,
          .body = error_body(message, status < 500 ? "invalid_request_error" : "server_error", "", code)};
}

}  // namespace

asio::awaitable<void> Api::show_live(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  if (!keys_.required() && !config_.live) {
    co_await exchange.respond(refusal(403,
                                      "the live view is closed: without API keys everybody who reaches this "
                                      "server would see all requests; quire serve --live opens it",
                                      "live_view_closed"));
    co_return;
  }
  std::optional<uint64_t> tenant;
  if (keys_.required() && std::ranges::find(config_.operators, request.key_name) == config_.operators.end())
    tenant = request.tenant;
  constexpr std::string_view kType = "text/event-stream; charset=utf-8";
  if (request.method == "HEAD") co_return co_await exchange.start_stream(kType);
  Seat seat(live_.join(tenant));
  if (!seat.taken()) {
    HttpResponse full = refusal(503, "too many watch this server already", "too_many_watchers");
    full.headers.emplace_back("Retry-After", "5");
    co_await exchange.respond(std::move(full));
    co_return;
  }
  asio::steady_timer timer(co_await asio::this_coro::executor);
  co_await exchange.start_stream(kType);
  co_await exchange.write_stream(": the run of this server\n\n");
  while (!exchange.client_gone() && !live_.closed()) {
    timer.expires_after(kPause);
    co_await timer.async_wait(asio::use_awaitable);
    const std::string text = seat.take();
    if (!text.empty()) co_await exchange.write_stream(text);
  }
}

}  // namespace quire::serve
