#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>

#include "serve/body_budget.h"
#include "serve/http.h"
#include "serve/request_body.h"
#include "serve/server.h"

namespace quire::serve {

/// One client's connection: reads its requests one after the other, within the limits of ServerConfig, and
/// has them answered in order. It continues to read while a request is being answered, so that it notices
/// when the client disconnects (and keeps the data that a pipelining client sends ahead).
///
/// The data read and not parsed yet is at most max_buffer_bytes(), whatever the client sends. Between
/// requests, and during an answer, it holds no buffer for future data.
///
/// Every call runs on the socket's executor, one at a time, except those marked "any thread".
class Connection final : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  /// The stage of a connection.
  enum class Stage : uint8_t {
    kUnborn,  // no byte of a request has ever arrived
    kHead,    // a part of a request's head has arrived
    kIdle,    // waits for the next request
    kBody,    // the head of a request has arrived, its body is arriving
    kBusy,
    kLeaving,  // has sent its last answer and lets the client read it
  };

  /// How little a connection uses its place; a smaller value means less use.
  struct Use {
    Stage stage = Stage::kLeaving;
    double bytes_per_second = 0;  // of a body
    std::chrono::steady_clock::time_point since;
    auto operator<=>(const Use&) const = default;
  };

  /// Each is called on its executor, once. on_refuse: the client gets 503 because there is no place.
  /// on_leave: no more requests are answered. on_end: the connection has ended; may be called without the
  /// others.
  struct Hooks {
    std::function<void(Connection*)> on_refuse;
    std::function<void(Connection*)> on_leave;
    std::function<void(Connection*)> on_end;
  };

  /// The references must outlive it. `address` identifies the client if there is no tenant.
  Connection(asio::ip::tcp::socket socket, const ServerConfig& config, RequestHandler& handler,
             BodyBudget& bodies, uint64_t address, Hooks hooks);
  ~Connection() override;

  /// `crowded`: there is no place for it. It answers one vital request, or answers 503, and ends within a
  /// short time.
  void start(bool crowded);

  // Any thread.
  /// Ends it after the answer in progress, or at once if there is none.
  void finish_soon();
  /// Ends it at once.
  void cut_soon();
  /// Ends it unless a request has arrived in the meantime; if it is not idle, the client gets an answer that
  /// says why.
  void make_way_soon();
  Stage stage() const { return stage_.load(std::memory_order_relaxed); }
  /// Empty while the connection is in use: its request is being processed or arrives fast enough, or it has
  /// not had enough time yet. A request has kTimeToBegin; a body has kTimeForBody, and after that it must
  /// arrive at kFairBytesPerSecond on average, without a pause of kTimeForBody. A client that does not accept
  /// at most kShortWrite bytes of an answer within kTimeToRead counts as not reading.
  std::optional<Use> little_use(std::chrono::steady_clock::time_point now) const;
  static constexpr std::chrono::milliseconds kTimeToBegin{50};
  static constexpr std::chrono::milliseconds kTimeForBody{500};
  static constexpr double kFairBytesPerSecond = 64 << 10;
  static constexpr size_t kShortWrite = 64 << 10;
  static constexpr std::chrono::milliseconds kTimeToRead{2000};
  /// When its current stage began.
  std::chrono::steady_clock::time_point stage_since() const {
    return std::chrono::steady_clock::time_point(
        std::chrono::steady_clock::duration(since_.load(std::memory_order_relaxed)));
  }

  static size_t max_buffer_bytes(const ServerConfig& config);

  // Of Exchange:
  const HttpRequest& request() const override { return request_; }
  void drop_body() override;
  void add_header(std::string name, std::string value) override {
    request_.answer_headers.emplace_back(std::move(name), std::move(value));
  }
  asio::awaitable<void> respond(HttpResponse response) override;
  asio::awaitable<void> start_stream(std::string_view content_type) override;
  asio::awaitable<void> write_stream(std::string_view data) override;
  bool client_gone() const override { return gone_; }
  void on_client_gone(std::function<void()> hook) override { gone_hook_ = std::move(hook); }
  void cut() override;

 private:
  enum class Answer : uint8_t { kNone, kWhole, kStream };
  using Parser = boost::beast::http::request_parser<RequestBody>;
  using error_code = boost::system::error_code;
  static constexpr size_t kReadBytes = 8 << 10;
  static constexpr size_t kMaxFraming = 16 << 10;    // a chunk header, or all trailers
  static constexpr size_t kMaxReadAhead = 16 << 10;  // data that a pipelining client sends during an answer

  asio::awaitable<void> run();
  asio::awaitable<bool> wait_for_request();
  asio::awaitable<bool> serve_one();
  asio::awaitable<bool> read_request();
  asio::awaitable<bool> read_body(Parser& parser);
  asio::awaitable<error_code> feed(Parser& parser, bool whole);
  asio::awaitable<void> answer_request();
  asio::awaitable<void> refuse_broken(error_code why);
  asio::awaitable<void> refuse(unsigned status, std::string message);
  asio::awaitable<void> refuse_for_memory();
  asio::awaitable<void> refuse_for_place();
  asio::awaitable<void> linger();
  asio::awaitable<void> ask_for_body();
  template <class Buffers>
  asio::awaitable<void> write(const Buffers& buffers);
  template <class Buffers>
  asio::awaitable<void> write_within_deadline(const Buffers& buffers);
  asio::awaitable<void> end_stream();  // of a chunked answer
  asio::awaitable<void> write_held(std::string_view head, const HttpResponse& response);
  void check_reader();

  void end();
  void enter(Stage stage);
  void enter_body();
  void count_body(size_t bytes);
  void leave();
  void watch();
  void read_ahead(error_code& failed);
  asio::awaitable<void> stop_watching();
  void lose_client();
  bool is_stuck(std::chrono::steady_clock::time_point now) const;
  void set_deadline(Nanos after);
  void clear_deadline();

  asio::ip::tcp::socket socket_;
  const ServerConfig& config_;
  RequestHandler& handler_;
  const uint64_t address_;
  Hooks hooks_;
  std::atomic<Stage> stage_ = Stage::kUnborn;
  std::atomic<std::chrono::steady_clock::rep> since_;
  std::atomic<std::chrono::steady_clock::rep> stuck_since_ =
      0;                                  // when a short write began; 0: none is in progress
  std::atomic<uint64_t> body_bytes_ = 0;  // that have arrived in stage kBody
  std::atomic<std::chrono::steady_clock::rep> body_bytes_since_;  // when the last of them arrived
  bool crowded_ = false;
  bool making_way_ = false;

  boost::beast::flat_buffer buffer_;  // read and not yet parsed
  asio::steady_timer deadline_;
  uint64_t deadline_number_ = 0;
  bool timed_out_ = false;

  asio::steady_timer watch_end_;
  bool watching_ = false;   // a read into buffer_ is in progress
  bool answering_ = false;  // so keep reading
  bool finish_ = false;     // accept no more requests
  bool gone_ = false;
  std::function<void()> gone_hook_;

  BodyBudget::Claim claim_;  // for the body of request_
  bool reading_body_ = false;
  bool body_dropped_ = false;  // in favour of other bodies
  std::stop_source abandoned_{std::nostopstate};
  HttpRequest request_;
  const AnswerBudget::Claim* held_ = nullptr;  // the claim of the answer that is being written
  std::chrono::steady_clock::time_point held_since_;
  asio::steady_timer reader_check_;  // while held_
  bool keep_alive_ = false;          // after this request
  bool http10_ = false;
  bool unread_ = false;  // the client may still be sending data that will not be read
  Answer answer_ = Answer::kNone;
  unsigned status_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace quire::serve
