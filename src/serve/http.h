#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "serve/answer_budget.h"

// The parts of HTTP that a handler uses.
namespace quire::serve {

namespace asio = boost::asio;

struct HttpRequest {
  std::string method;
  std::string path;  // percent-decoded, without the query
  std::string host;  // as received; from the target if that names a host; empty: HTTP/1.0 without a host
  std::string origin;
  std::string authorization;
  std::string content_type;
  std::string content_encoding;
  std::string accept_encoding;
  std::string if_none_match;
  std::string wants_prediction;   // x-quire-predict, all lines of it
  std::string requested_headers;  // a preflight's Access-Control-Request-Headers
  uint64_t client = 0;            // the client for shares: the tenant, or else the address
  std::stop_token abandoned;      // says, on any thread, whether the client has disconnected
  std::string body;

  // Set by the router.
  uint64_t tenant = 0;                                              // from the key; 0: no keys in use
  std::string key_name;                                             // for logs; empty: no keys in use
  std::vector<std::pair<std::string, std::string>> answer_headers;  // headers of its answer, whatever that is
};

struct HttpResponse {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  AnswerBudget::Claim claim;  // for a large body, until it is written
  std::string_view lasting;   // the body, if it is of bytes that outlive the server

  std::string_view text() const { return lasting.empty() ? std::string_view(body) : lasting; }
};

/// How the end of a body is marked.
enum class Framing : uint8_t { kLength, kChunked, kUntilClose };

/// The answer with which a request is refused; thrown by a handler that has not answered yet.
struct HttpRefusal final : std::exception {
  HttpRefusal(unsigned the_status, std::string the_message)
      : status(the_status), message(std::move(the_message)) {}
  const char* what() const noexcept override { return message.c_str(); }

  unsigned status;
  std::string message;
};

/// Whether a status has neither a body nor what describes one: 204, and 304, whose body the client has.
inline bool has_no_body(unsigned status) { return status == 204 || status == 304; }

/// The header of a response, with its empty line.
std::string response_head(const HttpResponse& response, Framing framing, bool keep_alive);

/// "%41" -> "A"; empty if a percent sign is not followed by two hex digits.
std::optional<std::string> percent_decode(std::string_view text);

/// One request and its answer. Handlers run on the connection's executor and answer exactly once: respond(),
/// or start_stream() and then, unless the request is a HEAD, write_stream() any number of times. Writing
/// throws boost::system::system_error if the client has disconnected.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  /// Frees the request's body and its share of the memory for bodies, after the handler has read it.
  virtual void drop_body() = 0;
  /// Adds a header to the answer, whatever that is. Before the answer.
  virtual void add_header(std::string name, std::string value) = 0;
  virtual asio::awaitable<void> respond(HttpResponse response) = 0;
  virtual asio::awaitable<void> start_stream(std::string_view content_type) = 0;
  virtual asio::awaitable<void> write_stream(std::string_view data) = 0;
  /// Whether the client has closed the connection.
  virtual bool client_gone() const = 0;
  /// `hook` is called on the executor when that happens; an empty hook removes it.
  virtual void on_client_gone(std::function<void()> hook) = 0;
  /// Closes the connection: writes in progress fail, and client_gone() is true from now on. On the executor.
  virtual void cut() = 0;
};

/// Handles the requests of a server. Called on the executors of many connections.
class RequestHandler {
 public:
  virtual ~RequestHandler() = default;
  /// Checks a request before its body is read: returns the answer if it can be given already (no such path,
  /// no valid key, ...).
  virtual std::optional<HttpResponse> settle_early(HttpRequest& request) const = 0;
  /// Whether this is answered even when there is no place for other requests: the requests of monitoring.
  virtual bool is_vital(const HttpRequest& request) const = 0;
  /// Answers a request. An exception, other than from Exchange and HttpRefusal, becomes a 500.
  virtual asio::awaitable<void> handle(Exchange& exchange) = 0;
};

}  // namespace quire::serve
