#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "engine/engine.h"

namespace quire::serve {

namespace asio = boost::asio;

/// Output on its way from the engine thread to a connection. Output that arrives while the connection is busy
/// waits, and is then taken and written in one batch; the items stay separate, so that a client sees each
/// token as a chunk of its own.
class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  struct News {
    size_t prompt = 0;  // index of the prompt in the request
    engine::RequestOutput output;
  };

  /// `executor`: that of the connection, which runs one handler at a time. `on_overflow` is called there,
  /// once, when more than `max_bytes` wait (0: no limit); later output is dropped.
  Mailbox(const asio::any_io_executor& executor, uint64_t max_bytes, std::function<void()> on_overflow);

  /// Any thread; does not block. Ignored after close(). May throw for lack of memory; then nothing has
  /// changed.
  void put(size_t prompt, engine::RequestOutput output);

  /// On the executor, one call at a time: the output since the last call, in order. Waits until there is
  /// some, or until wake(); after wake() the list may be empty.
  asio::awaitable<std::vector<News>> take();
  /// On the executor: makes a waiting take() return now.
  void wake();
  /// On the executor, at the end: later output is dropped and the executor is no longer used, so that the
  /// engine may keep the mailbox after the server is destroyed.
  void close();

 private:
  std::optional<asio::steady_timer> signal_;  // never expires: cancelling it wakes take(); none once closed
  const uint64_t max_bytes_;
  const std::function<void()> on_overflow_;

  std::mutex mutex_;  // guards the following members
  std::vector<News> pending_;
  uint64_t bytes_ = 0;     // of waiting output, approximately
  bool notified_ = false;  // a wake-up is pending
  bool overflowed_ = false;
};

}  // namespace quire::serve
