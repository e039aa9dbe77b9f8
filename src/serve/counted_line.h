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

/// A warning about what clients can bring about as often as they like: one line says how many times it has
/// happened since the line before. The first comes a second after it has happened, further ones at least
/// kBetween after one another.
class CountedLine {
 public:
  using Line = std::function<std::string(uint64_t times)>;
  static constexpr std::chrono::seconds kFirst{1};
  static constexpr std::chrono::seconds kBetween{10};

  /// `executor` runs one thing at a time and is alive as long as this is.
  CountedLine(asio::any_io_executor executor, Line line);

  /// It has happened once more. Any thread.
  void count() noexcept;
  /// Says what has not been said, and from now on everything at once. On the executor.
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  void wait();
  void say();

  const Line line_;
  std::atomic<uint64_t> times_ = 0;    // not said yet
  std::atomic<bool> waiting_ = false;  // for the moment to say them
  // On the executor.
  asio::steady_timer timer_;
  Clock::time_point said_ = Clock::time_point::min();
  bool closed_ = false;
};

}  // namespace quire::serve
