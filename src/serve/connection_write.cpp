// The part of Connection that writes answers, complete or as streams, within their time limits.
#include <array>
#include <chrono>
#include <string>
#include <string_view>

#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "serve/connection.h"

namespace quire::serve {
namespace {

using boost::system::error_code;

/// An answer is read slowly if fewer bytes than this a second have been taken of it after kReaderGrace.
constexpr double kSlowReader = 1 << 20;
constexpr std::chrono::seconds kReaderGrace{2};
constexpr std::chrono::milliseconds kReaderCheck{500};
constexpr size_t kPiece = 256 << 10;  // of an answer; what it is checked by

}  // namespace

template <class Buffers>
asio::awaitable<void> Connection::write(const Buffers& buffers) {
  set_deadline(config_.write_timeout);
  co_await write_within_deadline(buffers);
  clear_deadline();
}

template <class Buffers>
asio::awaitable<void> Connection::write_within_deadline(const Buffers& buffers) {
  error_code failed;
  if (asio::buffer_size(buffers) <= kShortWrite) {
    stuck_since_ = std::chrono::steady_clock::now().time_since_epoch().count();
  }
  sent_ += co_await asio::async_write(socket_, buffers, asio::redirect_error(asio::use_awaitable, failed));
  stuck_since_ = 0;
  if (failed) {
    clear_deadline();
    lose_client();
    throw boost::system::system_error(failed);
  }
}

/// Writes an answer that is counted while it waits, and that is dropped in favour of others if it is read
/// slowly.
asio::awaitable<void> Connection::write_held(std::string_view head, const HttpResponse& response) {
  struct Reset {
    Connection& connection;
    ~Reset() {
      connection.held_ = nullptr;
      connection.reader_check_.cancel();
    }
  };
  held_ = &response.claim;
  held_since_ = std::chrono::steady_clock::now();
  const Reset reset{*this};
  check_reader();
  set_deadline(config_.write_timeout);
  co_await write_within_deadline(asio::buffer(head));
  for (std::string_view rest = response.text(); !rest.empty();) {
    const std::string_view piece = rest.substr(0, kPiece);
    co_await write_within_deadline(asio::buffer(piece));
    rest.remove_prefix(piece.size());
  }
  clear_deadline();
}

void Connection::check_reader() {
  reader_check_.expires_after(kReaderCheck);
  reader_check_.async_wait([self = shared_from_this()](error_code failed) {
    if (failed || self->held_ == nullptr) return;
    const std::chrono::duration<double> age = std::chrono::steady_clock::now() - self->held_since_;
    const bool slow = age >= kReaderGrace && static_cast<double>(self->sent_) < age.count() * kSlowReader;
    if (slow && self->held_->must_make_way()) {
      log_debug(fmt::format("{} {}: the answer is read too slowly while others wait for memory",
                            self->request_.method, self->request_.path));
      self->cut();
      return;
    }
    self->check_reader();
  });
}

asio::awaitable<void> Connection::ask_for_body() {
  co_await write(asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n")));
}

asio::awaitable<void> Connection::respond(HttpResponse response) {
  answer_ = Answer::kWhole;
  status_ = response.status;
  keep_alive_ = keep_alive_ && !finish_;
  for (const auto& header : request_.answer_headers) response.headers.push_back(header);
  const std::string head = response_head(response, Framing::kLength, keep_alive_);
  if (request_.method == "HEAD" || has_no_body(response.status)) {
    response.body.clear();
    response.lasting = {};
  }
  if (response.claim.holds()) {
    co_await write_held(head, response);
    co_return;
  }
  const std::array<asio::const_buffer, 2> both = {asio::buffer(head), asio::buffer(response.text())};
  co_await write(both);
}

asio::awaitable<void> Connection::start_stream(std::string_view content_type) {
  answer_ = Answer::kStream;
  status_ = 200;
  keep_alive_ = keep_alive_ && !finish_;
  HttpResponse response;
  response.content_type = content_type;
  response.headers = request_.answer_headers;
  response.headers.emplace_back("Cache-Control", "no-cache");
  const std::string head =
      response_head(response, http10_ ? Framing::kUntilClose : Framing::kChunked, keep_alive_);
  co_await write(asio::buffer(head));
}

asio::awaitable<void> Connection::end_stream() {
  if (request_.method == "HEAD") co_return;
  co_await write(asio::buffer(std::string_view("0\r\n\r\n")));
}

asio::awaitable<void> Connection::write_stream(std::string_view data) {
  if (data.empty()) co_return;  // an empty chunk would end the stream
  if (http10_) {
    co_await write(asio::buffer(data));
    co_return;
  }
  const std::string size = fmt::format("{:x}\r\n", data.size());
  const std::array<asio::const_buffer, 3> chunk = {asio::buffer(size), asio::buffer(data),
                                                   asio::buffer(std::string_view("\r\n"))};
  co_await write(chunk);
}

}  // namespace quire::serve
