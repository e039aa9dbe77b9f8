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
/// has them answered in order. While a request is being answered it goes on reading, so that it notices when
/// the client hangs up (and keeps what a pipelining client sends ahead).
///
/// What it has read and not parsed yet is at most max_buffer_bytes(), whatever the client sends. Between
/// requests, and during an answer, it holds no memory for what may come.
///
/// Everything but what says "any thread" runs on the socket's executor, one thing at a time.
class Connection final : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  /// What a connection is at.
  enum class Stage : uint8_t {
    kUnborn,  // nothing of a request has ever come
    kHead,    // the head of a request has begun to come
    kIdle,    // waits for another request
    kBody,    // the head of a request is there, its body arrives
    kBusy,
    kLeaving,  // has said its last; lets the client read it
  };

  /// How little a connection does for the place that it has: the less, the smaller.
  struct Use {
    Stage stage = Stage::kLeaving;
    double bytes_per_second = 0;  // of a body
    std::chrono::steady_clock::time_point since;
    auto operator<=>(const Use&) const = default;
  };

  /// Called on its executor, once each. on_refuse: the client is told 503 for want of a place. on_leave: no
  /// request is answered any more. on_end: it is over; may come without the others.
  struct Hooks {
    std::function<void(Connection*)> on_refuse;
    std::function<void(Connection*)> on_leave;
    std::function<void(Connection*)> on_end;
  };

  /// What is referred to must outlive it. `address` stands for the client where no tenant does.
  Connection(asio::ip::tcp::socket socket, const ServerConfig& config, RequestHandler& handler,
             BodyBudget& bodies, uint64_t address, Hooks hooks);
  ~Connection() override;

  /// `crowded`: there is no place for it. It answers one vital request, or says 503, and ends within a short
  /// time.
  void start(bool crowded);

  // Any thread.
  /// Ends it after the answer under way, or at once if there is none.
  void finish_soon();
  /// Ends it at once.
  void cut_soon();
  /// Ends it if a request has not arrived meanwhile; one that is not idle is told why.
  void make_way_soon();
  Stage stage() const { return stage_.load(std::memory_order_relaxed); }
  /// Nothing while it is of use: what its client asks is worked on or has come at a fair pace, or it has had
  /// no time yet. Time to begin: kTimeToBegin; for a body kTimeForBody, and then it is of use as long as it
  /// comes at kFairBytesPerSecond on average, without a pause of kTimeForBody. Whoever does not take at most
  /// kShortWrite bytes of an answer for kTimeToRead reads nothing.
  std::optional<Use> little_use(std::chrono::steady_clock::time_point now) const;
  static constexpr std::chrono::milliseconds kTimeToBegin{50};
  static constexpr std::chrono::milliseconds kTimeForBody{500};
  static constexpr double kFairBytesPerSecond = 64 << 10;
  static constexpr size_t kShortWrite = 64 << 10;
  static constexpr std::chrono::milliseconds kTimeToRead{2000};
  /// Since when it is at its stage.
  std::chrono::steady_clock::time_point stage_since() const {
    return std::chrono::steady_clock::time_point(
        std::chrono::steady_clock::duration(since_.load(std::memory_order_relaxed)));
  }

  static size_t max_buffer_bytes(const ServerConfig& config);

  // Exchange.
  const HttpRequest& request() const override { return request_; }
  void drop_body() override;
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
  static constexpr size_t kMaxFraming = 16 << 10;    // a chunk's head, or all trailers
  static constexpr size_t kMaxReadAhead = 16 << 10;  // of what a pipelining client sends during an answer

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
  asio::awaitable<void> end_stream();  // of chunks
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
      0;                                  // a short write has begun; 0: none is under way
  std::atomic<uint64_t> body_bytes_ = 0;  // that have come at kBody
  std::atomic<std::chrono::steady_clock::rep> body_bytes_since_;  // the last of them
  bool crowded_ = false;
  bool making_way_ = false;

  boost::beast::flat_buffer buffer_;  // read and not yet parsed
  asio::steady_timer deadline_;
  uint64_t deadline_number_ = 0;
  bool timed_out_ = false;

  asio::steady_timer watch_end_;
  bool watching_ = false;   // a read is under way whose bytes go to buffer_
  bool answering_ = false;  // so watch on
  bool finish_ = false;     // take no more requests
  bool gone_ = false;
  std::function<void()> gone_hook_;

  BodyBudget::Claim claim_;  // for the body of request_
  bool reading_body_ = false;
  bool body_dropped_ = false;  // to make way for others'
  std::stop_source abandoned_{std::nostopstate};
  HttpRequest request_;
  const AnswerBudget::Claim* held_ = nullptr;  // of the answer that is being written
  std::chrono::steady_clock::time_point held_since_;
  asio::steady_timer reader_check_;  // while held_
  bool keep_alive_ = false;          // after this request
  bool http10_ = false;
  bool unread_ = false;  // the client may still be sending what nobody will read
  Answer answer_ = Answer::kNone;
  unsigned status_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace quire::serve
