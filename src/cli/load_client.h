#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
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

namespace quire::cli {

/// "http://host:port" taken apart; "/v1" behind it is what clients of OpenAI's API write and is left out.
struct ServerUrl {
  std::string host;  // of an IPv6 address without its brackets
  std::string port = "80";
  std::string base;  // "", or the "/path" that stands before "/v1"
  /// Throws Error naming `flag`.
  static ServerUrl parse(std::string_view url, std::string_view flag);
  /// "host:port", as the header Host has it.
  std::string authority() const;
};

/// Takes a stream of server-sent events apart (HTML standard, 9.2.6), wherever the bytes were split.
class EventReader {
 public:
  /// Calls `take` with the data of each event that these bytes end. Throws Error if one is longer than
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

/// What came of one request. Times are the clock's.
struct StreamedAnswer {
  std::string error;  // empty: the answer came to its end
  Nanos first = -1;   // the first piece of text, or a token that is none yet
  Nanos last = -1;    // the last piece so far
  Nanos end = -1;     // the end of the answer, or when it was given up
  uint32_t tokens = 0;
  uint32_t prompt_tokens = 0;
  bool has_usage = false;   // the server said how many tokens; else they are such pieces
  bool done = false;        // "[DONE]" came
  std::vector<Nanos> gaps;  // from one token to the next; see arrive()
  uint32_t fresh = 0;       // tokens of the events since the last arrive()

  /// Takes the data of one event of a completion's or a chat completion's stream. What it cannot be becomes
  /// the error, as does what the server says went wrong.
  void take(std::string_view data);
  /// The events since the last call came at `now`, in one read. Their tokens share the time since those
  /// before them, each with an equal part, so that how the server or the network puts tokens together does
  /// not change what is told of its pace. Tokens that come together with the first have no gap. An event
  /// without "token_ids" counts as one token.
  void arrive(Nanos now);
};

/// A connection to an OpenAI-compatible server, kept between requests. For one coroutine at a time.
class LoadClient {
 public:
  /// A server that is silent for `patience` has lost the request.
  LoadClient(boost::asio::io_context& io, ServerUrl url, std::string api_key,
             std::chrono::milliseconds patience, const Clock& clock)
      : stream_(io), url_(std::move(url)), api_key_(std::move(api_key)), patience_(patience), clock_(clock) {}

  /// GET; the body of a 200. Throws Error.
  boost::asio::awaitable<std::string> get(std::string path);
  /// POSTs a streaming request and follows the events of its answer. Never throws: what goes wrong is in the
  /// answer. A kept connection that the server has closed meanwhile is made anew.
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

}  // namespace quire::cli
