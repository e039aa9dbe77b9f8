#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "serve/http.h"
#include "serve/server.h"

namespace quire {

/// One client's connection: reads its requests one after the other, within the limits of ServerConfig, and
/// has them answered in order. While a request is being answered it goes on reading, so that it notices when
/// the client hangs up (and keeps what a pipelining client sends ahead).
///
/// Everything but start(), finish_soon() and cut_soon() runs on the socket's executor, one thing at a time.
class Connection final : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  /// `config` and `handler` must outlive it. `on_end` is called when it is over.
  Connection(asio::ip::tcp::socket socket, const ServerConfig& config, RequestHandler& handler,
             std::function<void(Connection*)> on_end);

  void start();
  /// Says 503 and closes: there are too many connections.
  void turn_away();

  // Any thread.
  /// Ends it after the answer under way, or at once if there is none.
  void finish_soon();
  /// Ends it at once.
  void cut_soon();

  // Exchange.
  const HttpRequest& request() const override { return request_; }
  asio::awaitable<void> respond(HttpResponse response) override;
  asio::awaitable<void> start_stream(std::string_view content_type) override;
  asio::awaitable<void> write_stream(std::string_view data) override;
  bool client_gone() const override { return gone_; }
  void on_client_gone(std::function<void()> hook) override { gone_hook_ = std::move(hook); }
  void cut() override;

 private:
  enum class Answer : uint8_t { kNone, kWhole, kStream };

  asio::awaitable<void> run();
  asio::awaitable<bool> wait_for_request();
  asio::awaitable<bool> serve_one();
  asio::awaitable<bool> read_request();
  asio::awaitable<void> answer_request();
  asio::awaitable<void> refuse_broken(boost::system::error_code why);
  asio::awaitable<void> refuse(unsigned status, std::string message);
  asio::awaitable<void> linger();
  template <class Buffers>
  asio::awaitable<void> write(const Buffers& buffers);

  void end();
  void watch();
  asio::awaitable<void> stop_watching();
  void lose_client();
  void set_deadline(Nanos after);
  void clear_deadline();

  asio::ip::tcp::socket socket_;
  const ServerConfig& config_;
  RequestHandler& handler_;
  const std::function<void(Connection*)> on_end_;

  boost::beast::flat_buffer buffer_;  // read and not yet parsed
  asio::steady_timer deadline_;
  uint64_t deadline_number_ = 0;
  bool timed_out_ = false;

  asio::steady_timer watch_end_;
  bool watching_ = false;   // a read is under way whose bytes go to buffer_
  bool answering_ = false;  // so watch on
  bool idle_ = false;       // waits for a request
  bool finish_ = false;     // take no more requests
  bool gone_ = false;
  std::function<void()> gone_hook_;

  HttpRequest request_;
  bool keep_alive_ = false;  // after this request
  bool http10_ = false;
  bool unread_ = false;  // the client may still be sending what nobody will read
  Answer answer_ = Answer::kNone;
  unsigned status_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace quire
