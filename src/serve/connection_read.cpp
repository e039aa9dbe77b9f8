// The part of Connection that reads: from bytes to a request, or to the reason why there is none.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/error.hpp>
#include <fmt/format.h>

#include "serve/connection.h"

namespace quire::serve {
namespace {

namespace http = boost::beast::http;

/// The most framing bytes per byte of a chunked body: a chunk with 1 byte takes 6.
constexpr uint64_t kMaxFramingPerByte = 8;

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

/// A field that is a list: several lines of it are one (RFC 9110, section 5.3).
template <class Name>
std::string joined(const http::request_header<>& head, Name name) {
  std::string out;
  const auto [begin, end] = head.equal_range(name);
  for (auto field = begin; field != end; ++field) {
    if (field != begin) out += ", ";
    out += view(field->value());
  }
  return out;
}

/// The error in the fields of the head; empty if they are valid. A field that affects access must occur only
/// once: of two, a proxy before this server may have used the other.
std::string find_head_fault(const http::request_header<>& head, const HttpRequest& request) {
  // RFC 9112, section 3.2.
  const size_t hosts = head.count(http::field::host);
  if (hosts == 0 && head.version() >= 11) return "the request has no Host header";
  for (const http::field name : {http::field::host, http::field::origin, http::field::authorization,
                                 http::field::content_type, http::field::content_encoding}) {
    if (head.count(name) > 1)
      return fmt::format("the request has two {} headers", view(http::to_string(name)));
  }
  // RFC 9112, section 6.3: else the body would be read as the next request.
  if (const std::string coding = joined(head, http::field::transfer_encoding);
      head.count(http::field::transfer_encoding) > 0 && !boost::beast::iequals(coding, "chunked")) {
    return fmt::format("Transfer-Encoding: '{}' is not supported, only 'chunked' is", coding);
  }
  // RFC 9110, section 4.2.1. A client without a Host field (HTTP/1.0) is not a browser.
  if (hosts > 0 && request.host.empty()) return "the Host header is empty";
  return {};
}

HttpRequest read_head(const http::request_header<>& head) {
  HttpRequest out;
  out.method = view(head.method_string());
  out.host = view(head[http::field::host]);
  std::string_view target = view(head.target());
  // The absolute form, as proxies write it (RFC 9112, section 3.2.2).
  if (const size_t scheme = target.find("://"); scheme != std::string_view::npos && target.front() != '/') {
    const size_t path = std::min(target.find('/', scheme + 3), target.size());
    out.host = target.substr(scheme + 3, path - scheme - 3);
    target.remove_prefix(path);
    if (target.empty()) target = "/";
  }
  // A path that cannot be decoded matches no route.
  out.path = percent_decode(target.substr(0, target.find('?'))).value_or("");
  out.origin = view(head[http::field::origin]);
  out.authorization = view(head[http::field::authorization]);
  out.content_type = view(head[http::field::content_type]);
  out.content_encoding = view(head[http::field::content_encoding]);
  out.accept_encoding = joined(head, http::field::accept_encoding);
  out.if_none_match = joined(head, http::field::if_none_match);
  out.wants_prediction = joined(head, boost::beast::string_view("x-quire-predict"));
  out.requested_headers = view(head[http::field::access_control_request_headers]);
  return out;
}

}  // namespace

/// Reads until the head, or the `whole` request, is there.
asio::awaitable<Connection::error_code> Connection::feed(Parser& parser, bool whole) {
  uint64_t framing = 0;
  for (;;) {
    error_code failed;
    while (buffer_.size() > 0 && failed != http::error::need_more) {
      const size_t before = parser.get().body().text.size();
      const size_t used = parser.put(buffer_.data(), failed);
      buffer_.consume(used);
      if (failed && failed != http::error::need_more) co_return failed;
      if (!failed && used == 0) failed = make_error_code(http::error::need_more);
      if (whole ? parser.is_done() : parser.is_header_done()) co_return error_code();
      const size_t size = parser.get().body().text.size();
      framing += used - (size - before);
      if (framing > kMaxFraming + kMaxFramingPerByte * size)
        co_return make_error_code(http::error::bad_chunk);
    }
    if (buffer_.size() + kReadBytes > buffer_.max_size()) {
      co_return make_error_code(http::error::buffer_overflow);
    }
    const size_t read = co_await socket_.async_read_some(buffer_.prepare(kReadBytes),
                                                         asio::redirect_error(asio::use_awaitable, failed));
    if (failed == asio::error::eof) {
      co_return make_error_code(parser.got_some() ? http::error::partial_message
                                                  : http::error::end_of_stream);
    }
    if (failed) co_return failed;
    buffer_.commit(read);
    if (whole) count_body(read);
  }
}

/// True if there is a complete request to answer; otherwise any error has been answered already.
asio::awaitable<bool> Connection::read_request() {
  Parser parser;
  parser.header_limit(config_.max_header_bytes);
  parser.body_limit(config_.max_body_bytes);
  parser.get().body().claim = &claim_;
  parser.get().body().max_bytes = config_.max_body_bytes;
  set_deadline(config_.header_timeout);
  const error_code failed = co_await feed(parser, false);
  clear_deadline();
  enter(Stage::kBusy);
  if (failed) {
    co_await refuse_broken(failed);
    co_return false;
  }
  const auto& head = parser.get();
  request_ = read_head(head);
  http10_ = head.version() < 11;
  if (std::string fault = find_head_fault(head, request_); !fault.empty()) {
    co_await refuse(400, std::move(fault));
    co_return false;
  }
  if (crowded_) {
    finish_ = true;
    if (!handler_.is_vital(request_)) {
      co_await refuse_for_place();
      co_return false;
    }
  }
  const bool may_stay = !http10_ && head.keep_alive();
  if (auto settled = handler_.settle_early(request_)) {
    unread_ = !parser.is_done();
    keep_alive_ = may_stay && !unread_;
    co_await respond(std::move(*settled));
    co_return false;
  }
  request_.client = request_.tenant != 0 ? request_.tenant : address_;
  abandoned_ = std::stop_source();
  request_.abandoned = abandoned_.get_token();
  if (!parser.is_done()) {
    // A request that needs no body, and perhaps no key, must not hold a place for as long as a body may take.
    if (request_.method != "POST") {
      unread_ = true;
      co_return true;
    }
    const bool arrived = co_await read_body(parser);
    if (!arrived) co_return false;
  }
  request_.body = std::move(parser.get().body().text);
  keep_alive_ = may_stay;
  co_return true;
}

asio::awaitable<bool> Connection::read_body(Parser& parser) {
  if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    co_await ask_for_body();
  }
  parser.eager(true);
  claim_.begin(request_.client);
  body_dropped_ = false;
  reading_body_ = true;
  set_deadline(config_.body_timeout);
  enter_body();
  error_code failed = co_await feed(parser, true);
  clear_deadline();
  enter(Stage::kBusy);
  reading_body_ = false;
  if (!failed) co_return true;
  parser.get().body().text = {};
  claim_.release();
  if (body_dropped_) failed = make_error_code(boost::system::errc::not_enough_memory);
  co_await refuse_broken(failed);
  co_return false;
}

/// Answers invalid data, or a request that is too large or too slow. The connection ends.
asio::awaitable<void> Connection::refuse_broken(error_code why) {
  unsigned status = 400;
  std::string message;
  if (why == http::error::header_limit) {
    status = 431;
    message = fmt::format("the header is larger than {} bytes", config_.max_header_bytes);
  } else if (why == http::error::body_limit) {
    status = 413;
    message = fmt::format("the body is larger than {} bytes", config_.max_body_bytes);
  } else if (why == http::error::buffer_overflow) {
    status = 431;
    message = fmt::format("the header of a chunk, or the trailers, are larger than {} bytes", kMaxFraming);
  } else if (why == boost::system::errc::not_enough_memory) {
    status = 503;
    message = "the memory for request bodies is full";
  } else if (making_way_ && why == asio::error::operation_aborted) {
    co_await refuse_for_place();
    co_return;
  } else if (timed_out_) {
    status = 408;
    message = "the request took too long to arrive";
  } else if (why == http::error::end_of_stream || why == http::error::partial_message ||
             why.category() != http::make_error_code(http::error::bad_method).category()) {
    lose_client();
    co_return;
  } else {
    message = fmt::format("this is not a valid HTTP request: {}", why.message());
  }
  co_await refuse(status, std::move(message));
}

}  // namespace quire::serve
