#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/fair_queue.h"
#include "serve/http.h"

namespace quire::serve {

/// Threads that do the long parts of requests, such as parsing a body, for the connections' executors.
/// FairQueue orders the requests of all clients, with the sizes of their bodies as the cost, in units of
/// kOrdinaryBody: so one client's requests with shorter bodies keep the order in which they came. A worker
/// needs a millisecond or two for such a body, so nobody gains by another order, and the scheduling policy
/// finds requests as they were sent. Thread-safe.
class Workers {
 public:
  static constexpr size_t kOrdinaryBody = size_t{16} << 10;  // bytes; some 3,000 tokens

  /// Whether work for a request of this client may start. Called from any thread, with the queue locked; work
  /// that may not start keeps its place, and the question is repeated every kAgain.
  using MayBegin = std::function<bool(uint64_t client)>;
  static constexpr std::chrono::milliseconds kAgain{10};

  explicit Workers(
      uint32_t threads, MayBegin may_begin = [](uint64_t) { return true; });

  /// Has a worker do `work` for the request of `exchange`; runs and resumes on the executor of `exchange`.
  /// False if the client disconnected before its turn: then `work` is never started. Throws what `work`
  /// throws.
  asio::awaitable<bool> run(Exchange& exchange, std::function<void()> work);

  /// Waits for the jobs that have started; the others are never started. Nothing may be run afterwards.
  void join();

 private:
  struct Task;
  void take_one();
  std::shared_ptr<Task> next();
  void call_back_one();
  void ask_again();

  const MayBegin may_begin_;
  std::mutex mutex_;  // guards the following members
  FairQueue<std::shared_ptr<Task>> queue_;
  size_t idle_ = 0;  // calls of take_one() that found only work that may not start
  bool asking_ = false;
  asio::thread_pool pool_;
  asio::steady_timer again_;  // used while asking_
};

}  // namespace quire::serve
