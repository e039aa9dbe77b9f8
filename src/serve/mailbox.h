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

/// News on its way from the engine's thread to a connection. What comes while the connection is busy waits,
/// and is then taken and written at once; it stays apart, so that a client sees each token as one.
class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  struct News {
    size_t prompt = 0;  // which of the request's prompts
    engine::RequestOutput output;
  };

  /// `executor`: the connection's, where one thing runs at a time. `on_overflow` is called there, once, when
  /// more than `max_bytes` wait (0: no bound); news after that is dropped.
  Mailbox(const asio::any_io_executor& executor, uint64_t max_bytes, std::function<void()> on_overflow);

  /// Any thread; does not block. Nothing happens after close(). May throw for want of memory: nothing has
  /// happened then.
  void put(size_t prompt, engine::RequestOutput output);

  /// On the executor, one at a time: what has come since the last call, in order. Waits until
  /// there is something, or until wake(): then perhaps nothing.
  asio::awaitable<std::vector<News>> take();
  /// On the executor: a take() that waits returns now.
  void wake();
  /// On the executor, at the end: whatever still comes is dropped, and the executor is not used any more, so
  /// that the engine may keep the mailbox for longer than the server lives.
  void close();

 private:
  std::optional<asio::steady_timer> signal_;  // never expires: cancelling it wakes take(); none once closed
  const uint64_t max_bytes_;
  const std::function<void()> on_overflow_;

  std::mutex mutex_;  // guards what follows
  std::vector<News> pending_;
  uint64_t bytes_ = 0;     // of what waits, roughly
  bool notified_ = false;  // a wake-up is on its way
  bool overflowed_ = false;
};

}  // namespace quire::serve
