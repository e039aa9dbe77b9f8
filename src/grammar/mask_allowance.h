#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace quire::grammar {

/// What the masks of a client's answers may take beyond what is common (compiler.h), as a token bucket. All
/// clients' steps wait for masks, and a client may have many answers and ever new grammars. Work is measured
/// in states of a parser, of 5 to 10 ns each. Thread-safe.
class MaskAllowance {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kMost = 40'000'000;
  static constexpr int64_t kMostOwed = 60'000'000;
  static constexpr int64_t kStatesPerSecond = 1'000'000;  // come back

  /// Whether it sufficed.
  bool spend(int64_t states, Clock::time_point now = Clock::now());
  /// How long it is used up; 0: it is not.
  std::chrono::seconds wait(Clock::time_point now = Clock::now());
  /// Whether it is as a new one.
  bool whole(Clock::time_point now = Clock::now());

 private:
  void refill(Clock::time_point now);

  std::mutex mutex_;  // guards the following members
  int64_t left_ = kMost;
  Clock::time_point filled_;
};

}  // namespace quire::grammar
