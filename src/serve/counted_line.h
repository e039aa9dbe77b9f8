#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>

namespace quire::serve {

namespace asio = boost::asio;

/// A warning about an event that clients can cause any number of times: one line says how many times it has
/// happened since the previous line. The first line comes a second after the event, further lines at least
/// kBetween apart.
class CountedLine {
 public:
  using Line = std::function<std::string(uint64_t times)>;
  static constexpr std::chrono::seconds kFirst{1};
  static constexpr std::chrono::seconds kBetween{10};

  /// `executor` runs one handler at a time and must outlive this object.
  CountedLine(asio::any_io_executor executor, Line line);

  /// The event has happened once more. Any thread.
  void count() noexcept;
  /// Writes the pending line; from now on each event is written at once. On the executor.
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  void wait();
  void say();

  const Line line_;
  std::atomic<uint64_t> times_ = 0;    // events not reported yet
  std::atomic<bool> waiting_ = false;  // for the time to report them
  // On the executor.
  asio::steady_timer timer_;
  Clock::time_point said_ = Clock::time_point::min();
  bool closed_ = false;
};

}  // namespace quire::serve
