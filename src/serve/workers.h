#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "serve/fair_queue.h"
#include "serve/http.h"

namespace quire::serve {

/// Threads that do the long parts of requests, such as parsing a body, for the connections' executors.
/// Requests of all clients take turns by FairQueue, at the cost of their bodies' bytes. Thread-safe.
class Workers {
 public:
  /// Whether work for a request of this client may begin. Called from any thread, with the queue locked;
  /// what may not begin keeps its place and is asked about again every kAgain.
  using MayBegin = std::function<bool(uint64_t client)>;
  static constexpr std::chrono::milliseconds kAgain{10};

  explicit Workers(
      uint32_t threads, MayBegin may_begin = [](uint64_t) { return true; });

  /// Has a worker do `work` for the request of `exchange`, on whose executor this runs and goes on
  /// afterwards. False if the client left before its turn came: then `work` has not begun and never does.
  /// Throws what `work` throws.
  asio::awaitable<bool> run(Exchange& exchange, std::function<void()> work);

  /// Waits for what has begun; what has not never does. Nothing may be run afterwards.
  void join();

 private:
  struct Task;
  void take_one();
  std::shared_ptr<Task> next();
  void call_back_one();
  void ask_again();

  const MayBegin may_begin_;
  std::mutex mutex_;  // guards what follows
  FairQueue<std::shared_ptr<Task>> queue_;
  size_t idle_ = 0;  // calls of take_one() that have found only what may not begin
  bool asking_ = false;
  asio::thread_pool pool_;
  asio::steady_timer again_;  // while asking_
};

}  // namespace quire::serve
