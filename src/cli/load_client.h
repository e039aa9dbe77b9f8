#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/tcp_stream.hpp>

#include "base/clock.h"

namespace quire::cli {

/// "http://host:port" taken apart.
struct ServerUrl {
  std::string host;
  std::string port = "80";
  /// Throws Error naming `flag`.
  static ServerUrl parse(const std::string& url, const std::string& flag);
};

/// What came of one request. Times are the clock's.
struct StreamedAnswer {
  std::string error;  // empty: the answer came to its end
  Nanos first = -1;   // the first piece of text
  Nanos last = -1;    // the end
  uint32_t tokens = 0;
  uint32_t prompt_tokens = 0;
  std::vector<Nanos> gaps;  // from a piece of text to the next
};

/// A connection to an OpenAI-compatible server, kept between requests. For one coroutine at a time.
class LoadClient {
 public:
  LoadClient(boost::asio::io_context& io, ServerUrl url, std::string api_key, const Clock& clock)
      : stream_(io), url_(std::move(url)), api_key_(std::move(api_key)), clock_(clock) {}

  /// GET; the body of a 200. Throws Error.
  boost::asio::awaitable<std::string> get(std::string path);
  /// POSTs a streaming request and follows the events of its answer. Never throws: what goes wrong is in the
  /// answer.
  boost::asio::awaitable<StreamedAnswer> stream(std::string path, std::string body);

 private:
  boost::asio::awaitable<void> connect();
  boost::asio::awaitable<void> send(std::string method, std::string path, std::string body);
  boost::asio::awaitable<void> follow(StreamedAnswer& answer);

  boost::beast::tcp_stream stream_;
  ServerUrl url_;
  std::string api_key_;
  const Clock& clock_;
  bool connected_ = false;
};

}  // namespace quire::cli
