#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include <boost/asio/thread_pool.hpp>

#include "serve/fair_queue.h"
#include "serve/http.h"

namespace quire {

/// Threads that do the long parts of requests, such as parsing a body, for the connections' executors.
/// Requests of all clients take turns by FairQueue, at the cost of their bodies' bytes. Thread-safe.
class Workers {
 public:
  explicit Workers(uint32_t threads) : pool_(threads) {}

  /// Has a worker do `work` for the request of `exchange`, on whose executor this runs and goes on
  /// afterwards. False if the client left before its turn came: then `work` has not begun and never does.
  /// Throws what `work` throws.
  asio::awaitable<bool> run(Exchange& exchange, std::function<void()> work);

  /// Waits for what has begun. Nothing may be run afterwards.
  void join() { pool_.join(); }

 private:
  struct Task;
  void take_one();

  std::mutex mutex_;
  FairQueue<std::shared_ptr<Task>> queue_;  // guarded by it
  asio::thread_pool pool_;
};

}  // namespace quire
