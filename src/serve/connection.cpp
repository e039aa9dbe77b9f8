#include "serve/connection.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/error.hpp>
#include <fmt/format.h>

#include "base/describe.h"
#include "base/log.h"
#include "serve/openai_response.h"

namespace quire::serve {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

/// The time limit for each operation of a connection without a place.
constexpr Nanos kCrowdedTime = 5 * kSecond;
constexpr Nanos kLingerTime = 2 * kSecond;
constexpr uint64_t kMaxLingerBytes = 64 << 20;

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, const ServerConfig& config, RequestHandler& handler,
                       BodyBudget& bodies, uint64_t address, Hooks hooks)
    : socket_(std::move(socket)),
      config_(config),
      handler_(handler),
      address_(address),
      hooks_(std::move(hooks)),
      since_(std::chrono::steady_clock::now().time_since_epoch().count()),
      body_bytes_since_(since_.load()),
      buffer_(max_buffer_bytes(config)),
      deadline_(socket_.get_executor()),
      watch_end_(socket_.get_executor(), asio::steady_timer::time_point::max()),
      claim_(bodies,
             [this] {
               auto self = weak_from_this().lock();
               if (!self) return;
               // Moved: the last reference must not be released here, since the connection's destructor takes
               // the budget's mutex.
               asio::post(socket_.get_executor(), [self = std::move(self)] {
                 if (!self->reading_body_) return;
                 self->body_dropped_ = true;
                 error_code ignored;
                 self->socket_.cancel(ignored);
               });
             }),
      reader_check_(socket_.get_executor()) {
  error_code ignored;
  socket_.non_blocking(true, ignored);  // for read_ahead
}

Connection::~Connection() {
  // An exception in Asio destroys a connection without calling its end.
  if (hooks_.on_end) hooks_.on_end(this);
}

size_t Connection::max_buffer_bytes(const ServerConfig& config) {
  return std::max<size_t>({kMaxFraming, kMaxReadAhead, config.max_header_bytes}) + kReadBytes;
}

void Connection::start(bool crowded) {
  crowded_ = crowded;
  asio::co_spawn(
      socket_.get_executor(), [self = shared_from_this()] { return self->run(); },
      [self = shared_from_this()](const std::exception_ptr& thrown) {
        self->end();
        if (!thrown) return;
        try {
          std::rethrow_exception(thrown);
        } catch (const boost::system::system_error&) {
          // The client has disconnected. A client can cause this at any rate, and it is not an error of the
          // server.
        } catch (const std::exception& error) {
          log_error(fmt::format("a connection ends: {}", describe(error)));
        }
      });
}

void Connection::enter(Stage stage) {
  since_.store(std::chrono::steady_clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  stage_.store(stage, std::memory_order_relaxed);
}

void Connection::enter_body() {
  body_bytes_.store(buffer_.size(), std::memory_order_relaxed);
  body_bytes_since_.store(std::chrono::steady_clock::now().time_since_epoch().count(),
                          std::memory_order_relaxed);
  enter(Stage::kBody);
}

void Connection::count_body(size_t bytes) {
  body_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  body_bytes_since_.store(std::chrono::steady_clock::now().time_since_epoch().count(),
                          std::memory_order_relaxed);
}

std::optional<Connection::Use> Connection::little_use(std::chrono::steady_clock::time_point now) const {
  Use use{.stage = stage(), .bytes_per_second = 0, .since = stage_since()};
  if (use.stage == Stage::kBusy && is_stuck(now)) return use;
  if (use.stage >= Stage::kBusy) return std::nullopt;
  const auto age = now - use.since;
  if (use.stage != Stage::kBody) return age >= kTimeToBegin ? std::optional(use) : std::nullopt;
  if (age < kTimeForBody) return std::nullopt;
  const double bytes = static_cast<double>(body_bytes_.load(std::memory_order_relaxed));
  use.bytes_per_second = bytes / std::chrono::duration<double>(age).count();
  const std::chrono::steady_clock::time_point last(
      std::chrono::steady_clock::duration(body_bytes_since_.load(std::memory_order_relaxed)));
  const bool fair = use.bytes_per_second >= kFairBytesPerSecond && now - last < kTimeForBody;
  return fair ? std::nullopt : std::optional(use);
}

bool Connection::is_stuck(std::chrono::steady_clock::time_point now) const {
  const std::chrono::steady_clock::rep since = stuck_since_.load(std::memory_order_relaxed);
  return since != 0 &&
         now - std::chrono::steady_clock::time_point(std::chrono::steady_clock::duration(since)) >=
             kTimeToRead;
}

void Connection::leave() {
  if (stage() == Stage::kLeaving) return;
  enter(Stage::kLeaving);
  if (hooks_.on_leave) hooks_.on_leave(this);
}

void Connection::make_way_soon() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    const Stage stage = self->stage();
    if (stage == Stage::kBusy && self->is_stuck(std::chrono::steady_clock::now())) return self->cut();
    if (stage >= Stage::kBusy) return;
    error_code failed;
    const bool waits = stage == Stage::kUnborn || stage == Stage::kIdle;
    if (waits && self->socket_.available(failed) > 0 && !failed) return;
    self->making_way_ = true;
    self->finish_ = true;
    self->socket_.cancel(failed);
  });
}

void Connection::finish_soon() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->finish_ = true;
    error_code ignored;
    const bool waits = self->stage() == Stage::kUnborn || self->stage() == Stage::kIdle;
    if (waits) self->socket_.cancel(ignored);
  });
}

void Connection::cut_soon() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->cut(); });
}

void Connection::end() {
  cut();  // a watching read would keep it
  if (auto on_end = std::exchange(hooks_.on_end, {})) on_end(this);
}

void Connection::cut() {
  finish_ = true;
  lose_client();
  error_code ignored;
  socket_.close(ignored);
}

void Connection::lose_client() {
  if (std::exchange(gone_, true)) return;
  abandoned_.request_stop();
  if (gone_hook_) gone_hook_();
}

// ---- Deadlines: the operation in progress fails when one passes ----

void Connection::set_deadline(Nanos after) {
  if (crowded_) after = std::min(after, kCrowdedTime);
  timed_out_ = false;
  const uint64_t number = ++deadline_number_;
  deadline_.expires_after(std::chrono::nanoseconds(after));
  deadline_.async_wait([self = shared_from_this(), number](error_code) {
    // The wait may have been cancelled too late.
    if (self->deadline_number_ != number) return;
    self->timed_out_ = true;
    error_code ignored;
    self->socket_.cancel(ignored);
  });
}

void Connection::clear_deadline() {
  ++deadline_number_;
  deadline_.cancel();
}

// ---- Requests ----

asio::awaitable<void> Connection::run() {
  // GCC 12 miscompiles a co_await inside a condition: its result goes into a variable first, here and below.
  for (bool more = true; more;) {
    const bool stays = co_await serve_one();
    more = stays;
  }
  leave();
  co_await linger();
}

asio::awaitable<bool> Connection::wait_for_request() {
  if (finish_) co_return false;
  if (buffer_.size() > 0) {
    enter(Stage::kHead);
    co_return true;
  }
  const bool unborn = stage() == Stage::kUnborn;
  enter(unborn ? Stage::kUnborn : Stage::kIdle);
  error_code failed;
  buffer_.shrink_to_fit();
  set_deadline(unborn ? config_.first_byte_timeout : config_.idle_timeout);
  co_await socket_.async_wait(asio::socket_base::wait_read,
                              asio::redirect_error(asio::use_awaitable, failed));
  size_t read = 0;
  if (!failed) {
    read = co_await socket_.async_read_some(buffer_.prepare(kReadBytes),
                                            asio::redirect_error(asio::use_awaitable, failed));
  }
  clear_deadline();
  buffer_.commit(read);
  if (failed && unborn && timed_out_) co_await refuse(408, "no request arrived in time");
  if (failed && unborn && making_way_) co_await refuse_for_place();
  if (!failed) enter(Stage::kHead);
  co_return !failed;
}

/// False if the connection ends with it.
asio::awaitable<bool> Connection::serve_one() {
  const bool arrived = co_await wait_for_request();
  if (!arrived) co_return false;
  const auto begun = std::chrono::steady_clock::now();
  request_ = {};
  answer_ = Answer::kNone;
  status_ = 0;
  sent_ = 0;
  keep_alive_ = false;
  http10_ = false;
  bool whole = false;
  bool no_memory = false;
  bool field_too_long = false;
  try {
    whole = co_await read_request();
  } catch (const std::bad_alloc&) {
    no_memory = true;
  } catch (const std::length_error&) {
    field_too_long = true;  // Beast supports no field of 64 KiB or more; only a trailer can be that long
  }
  reading_body_ = false;
  if (no_memory) co_await refuse_for_memory();
  if (field_too_long) co_await refuse(431, "a trailer is too long");
  if (whole) co_await answer_request();
  drop_body();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
  log_debug(fmt::format("{} {:?} {} {} bytes {:.1f} ms{}{}", request_.method.empty() ? "-" : request_.method,
                        request_.path, status_, sent_, took.count(),
                        request_.key_name.empty() ? "" : ", key " + request_.key_name,
                        gone_ ? ", client gone" : ""));
  co_return keep_alive_ && !finish_ && !gone_;
}

void Connection::drop_body() {
  request_.body = {};
  claim_.release();
}

asio::awaitable<void> Connection::answer_request() {
  std::string failure;
  bool no_memory = false;
  std::optional<HttpRefusal> refusal;
  answering_ = true;
  try {
    watch();
    co_await handler_.handle(*this);
    if (answer_ == Answer::kStream && !http10_ && !gone_) {
      co_await end_stream();
    }
  } catch (const boost::system::system_error&) {
    // The client has disconnected; lose_client() has logged it.
  } catch (const std::bad_alloc&) {
    no_memory = true;
  } catch (const HttpRefusal& thrown) {
    refusal = thrown;
  } catch (const std::exception& error) {
    failure = describe(error);
    if (failure.empty()) failure = "an unknown error";
  }
  answering_ = false;
  gone_hook_ = nullptr;
  if (!failure.empty()) log_error(fmt::format("{} {}: {}", request_.method, request_.path, failure));
  if (refusal) {
    drop_body();
    HttpResponse response{.status = refusal->status,
                          .body = error_body(refusal->message, "invalid_request_error", "", "")};
    co_await respond(std::move(response));
  } else if ((no_memory || !failure.empty()) && answer_ != Answer::kNone) {
    cut();  // so that the client does not take half an answer for a complete one
  } else if (no_memory) {
    drop_body();
    co_await refuse_for_memory();
  } else if (!failure.empty()) {
    HttpResponse response{.status = 500,
                          .body = error_body("internal error", "server_error", "", "internal_error")};
    co_await respond(std::move(response));
  }
  co_await stop_watching();
}

asio::awaitable<void> Connection::refuse(unsigned status, std::string message) {
  unread_ = true;
  keep_alive_ = false;
  HttpResponse response{.status = status, .body = error_body(message, "invalid_request_error", "", "")};
  if (status == 503) {
    response.body = error_body(message, "server_error", "", "overloaded");
    response.headers.emplace_back("Retry-After", "1");
  }
  co_await respond(std::move(response));
}

asio::awaitable<void> Connection::refuse_for_memory() {
  log_error(fmt::format("{} {}: the server has no memory for the request", request_.method, request_.path));
  co_await refuse(503, "the server has no memory for the request");
}

asio::awaitable<void> Connection::refuse_for_place() {
  if (hooks_.on_refuse) hooks_.on_refuse(this);
  co_await refuse(503, "too many connections");
}

/// Lets a client that is still sending read the answer before the connection is reset.
asio::awaitable<void> Connection::linger() {
  error_code failed;
  if (unread_ && !gone_) {
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, failed);
    set_deadline(kLingerTime);
    for (uint64_t read = 0; !failed && read < kMaxLingerBytes;) {
      buffer_.clear();
      read += co_await socket_.async_read_some(buffer_.prepare(kReadBytes),
                                               asio::redirect_error(asio::use_awaitable, failed));
    }
    clear_deadline();
  }
  socket_.close(failed);
}

// ---- Watching the client during an answer ----

void Connection::watch() {
  if (watching_ || gone_ || buffer_.size() >= kMaxReadAhead) return;
  if (buffer_.size() == 0) buffer_.shrink_to_fit();
  watching_ = true;
  socket_.async_wait(asio::socket_base::wait_read, [self = shared_from_this()](error_code failed) {
    self->watching_ = false;
    self->watch_end_.cancel();
    if (!failed && self->answering_) self->read_ahead(failed);
    if (failed && failed != asio::error::operation_aborted) self->lose_client();
    if (!failed && self->answering_) self->watch();
  });
}

void Connection::read_ahead(error_code& failed) {
  try {
    buffer_.commit(socket_.read_some(buffer_.prepare(kReadBytes), failed));
    if (failed == asio::error::would_block) failed = {};
  } catch (const std::bad_alloc&) {
    failed = asio::error::no_memory;
  }
}

asio::awaitable<void> Connection::stop_watching() {
  error_code ignored;
  // Cancelling loses nothing: it waits, and has read nothing.
  if (watching_) socket_.cancel(ignored);
  while (watching_) co_await watch_end_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace quire::serve
