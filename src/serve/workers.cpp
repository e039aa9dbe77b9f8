#include "serve/workers.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace quire::serve {

struct Workers::Task {
  Task(const asio::any_io_executor& executor, std::function<void()> the_work)
      : work(std::move(the_work)), signal(executor, asio::steady_timer::time_point::max()) {}

  std::function<void()> work;
  std::exception_ptr thrown;
  // On the executor only.
  FairQueue<std::shared_ptr<Task>>::Ticket ticket = 0;  // of no job before it is queued
  asio::steady_timer signal;                            // never expires: cancelling it wakes run()
  bool over = false;
  bool done = false;

  void finish(bool was_done) {
    over = true;
    done = was_done;
    signal.cancel();
  }
};

Workers::Workers(uint32_t threads, MayBegin may_begin)
    : may_begin_(std::move(may_begin)), pool_(threads), again_(pool_) {}

void Workers::join() {
  {
    const std::lock_guard lock(mutex_);
    while (queue_.pop()) {
    }
  }
  pool_.join();
}

asio::awaitable<bool> Workers::run(Exchange& exchange, std::function<void()> work) {
  if (exchange.client_gone()) co_return false;
  const auto task = std::make_shared<Task>(co_await asio::this_coro::executor, std::move(work));
  const uint64_t client = exchange.request().client;
  // Done first: nothing may throw while the job is queued, because its data would be destroyed before it.
  exchange.on_client_gone([this, task, client] {
    std::optional<std::shared_ptr<Task>> removed;
    {
      const std::lock_guard lock(mutex_);
      removed = queue_.remove(client, task->ticket);
    }
    if (removed) task->finish(false);
  });
  {
    const std::lock_guard lock(mutex_);
    task->ticket = queue_.push(client, 1 + exchange.request().body.size() / kOrdinaryBody, task);
    try {
      asio::post(pool_, [this] { take_one(); });
    } catch (...) {
      // It must not stay queued without a thread that takes it.
      queue_.remove(client, task->ticket);
      throw;
    }
  }
  boost::system::error_code ignored;
  while (!task->over) co_await task->signal.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  exchange.on_client_gone({});
  if (task->thrown) std::rethrow_exception(task->thrown);
  co_return task->done;
}

/// The next job of those that may start; null if there is none.
std::shared_ptr<Workers::Task> Workers::next() {
  const std::lock_guard lock(mutex_);
  auto found = queue_.pop(may_begin_);
  if (found) {
    call_back_one();
    return std::move(*found);
  }
  if (queue_.size() == 0) {
    idle_ = 0;
  } else {
    ++idle_;
    ask_again();
  }
  return nullptr;
}

/// REQUIRES: the mutex is held. Wakes another thread to look for a job, since one has been found again.
void Workers::call_back_one() {
  if (idle_ == 0) return;
  try {
    asio::post(pool_, [this] { take_one(); });
    --idle_;
  } catch (const std::bad_alloc&) {
    ask_again();
  }
}

/// REQUIRES: the mutex is held; on a worker's thread. Looks for a job again later.
void Workers::ask_again() {
  if (asking_) return;
  // Without this the jobs would wait forever, so it is retried until there is memory for it.
  for (;;) {
    try {
      again_.expires_after(kAgain);
      again_.async_wait([this](boost::system::error_code) {
        {
          const std::lock_guard lock(mutex_);
          asking_ = false;
          if (idle_ > 0) --idle_;
        }
        take_one();
      });
      asking_ = true;
      return;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

/// On a worker's thread. Called once per queued job; some jobs may have been removed.
void Workers::take_one() {
  const std::shared_ptr<Task> task = next();
  if (task == nullptr) return;
  try {
    task->work();
  } catch (...) {
    task->thrown = std::current_exception();
  }
  // Without this the request would wait forever, so it is retried until there is memory for it.
  for (;;) {
    try {
      asio::post(task->signal.get_executor(), [task] { task->finish(true); });
      return;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace quire::serve
