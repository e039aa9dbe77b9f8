#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/clock.h"

namespace quire::bench {

/// The parts of "http://host:port"; a final "/v1", which clients of OpenAI's API use, is omitted.
struct ServerUrl {
  std::string host;  // an IPv6 address is without brackets
  std::string port = "80";
  std::string base;  // "", or the "/path" before "/v1"
  /// Throws Error naming `flag`.
  static ServerUrl parse(std::string_view url, std::string_view flag);
  /// "host:port", as in the Host header.
  std::string authority() const;
};

/// Parses a stream of server-sent events (HTML standard, 9.2.6), wherever the bytes are split.
class EventReader {
 public:
  /// Calls `take` with the data of each event that these bytes complete. Throws Error if one is longer than
  /// kMostBytes.
  void push(std::string_view bytes, const std::function<void(std::string_view data)>& take);

  static constexpr size_t kMostBytes = size_t{16} << 20;

 private:
  void end_line(const std::function<void(std::string_view data)>& take);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;  // a line feed here belongs to it
};

/// The result of one request. Times are on the clock.
struct StreamedAnswer {
  std::string error;  // empty: the answer is complete
  Nanos first = -1;   // the first piece of text, or the first token without text
  Nanos last = -1;    // the last piece so far
  Nanos end = -1;     // the end of the answer, or when the request was given up
  uint32_t tokens = 0;
  uint32_t prompt_tokens = 0;
  std::optional<uint32_t> cached_tokens;  // of the prompt, if the server says
  bool has_usage = false;   // the server reported the number of tokens; otherwise pieces are counted
  bool done = false;        // "[DONE]" was received
  std::vector<Nanos> gaps;  // from one token to the next; see arrive()
  uint32_t fresh = 0;       // tokens in the events since the last arrive()

  /// Takes the data of one event of a completion's or a chat completion's stream. Invalid data becomes the
  /// error, and so does an error from the server.
  void take(std::string_view data);
  /// The events since the last call arrived at `now`, in one read. Their tokens share the time since the
  /// previous tokens equally, so that the batching of tokens by the server or the network does not change the
  /// reported pace. Tokens that arrive together with the first have no gap. An event without "token_ids"
  /// counts as one token.
  void arrive(Nanos now);
};

/// A connection to an OpenAI-compatible server, kept between requests. For one coroutine at a time.
class LoadClient {
 public:
  /// If the server sends nothing for `patience`, the request has failed.
  LoadClient(boost::asio::io_context& io, ServerUrl url, std::string api_key,
             std::chrono::milliseconds patience, const Clock& clock)
      : stream_(io), url_(std::move(url)), api_key_(std::move(api_key)), patience_(patience), clock_(clock) {}

  /// GET; the body of a 200. Throws Error.
  boost::asio::awaitable<std::string> get(std::string path);
  /// POSTs a streaming request and reads the events of its answer. Never throws: an error is in the answer. A
  /// kept connection that the server has closed is opened again.
  boost::asio::awaitable<StreamedAnswer> stream(std::string path, std::string body);

 private:
  struct Exchange;
  using Answer = boost::beast::http::response_parser<boost::beast::http::string_body>;
  boost::asio::awaitable<void> connect();
  boost::asio::awaitable<void> send(Exchange& exchange);
  boost::asio::awaitable<void> follow(Exchange& exchange, StreamedAnswer& answer);
  static void parse_held(Answer& parser, boost::beast::flat_buffer& buffer);
  boost::asio::awaitable<void> read_more(Answer& parser, boost::beast::flat_buffer& buffer);
  std::string explain(const boost::system::error_code& code, bool heard) const;
  void close();

  boost::beast::tcp_stream stream_;
  ServerUrl url_;
  std::string api_key_;
  std::chrono::milliseconds patience_;
  const Clock& clock_;
  bool connected_ = false;
};

}  // namespace quire::bench
