#include "serve/counted_line.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/log.h"

namespace quire::serve {

CountedLine::CountedLine(asio::any_io_executor executor, Line line)
    : line_(std::move(line)), timer_(std::move(executor)) {}

void CountedLine::count() noexcept {
  times_.fetch_add(1);
  if (waiting_.exchange(true)) return;
  try {
    asio::post(timer_.get_executor(), [this] { wait(); });
  } catch (const std::exception&) {
    waiting_ = false;  // out of memory: the next line reports this event too
  }
}

void CountedLine::close() {
  closed_ = true;
  timer_.cancel();
  say();
}

void CountedLine::wait() {
  if (closed_) return say();
  const Clock::time_point now = Clock::now();
  const bool first = said_ == Clock::time_point::min();
  timer_.expires_at(first ? now + kFirst : std::max(now + kFirst, said_ + kBetween));
  timer_.async_wait([this](boost::system::error_code) { say(); });
}

void CountedLine::say() {
  waiting_ = false;
  const uint64_t times = times_.exchange(0);
  if (times == 0) return;
  said_ = Clock::now();
  log_warning(line_(times));
}

}  // namespace quire::serve
