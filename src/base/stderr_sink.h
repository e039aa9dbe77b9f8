#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string_view>

#include <spdlog/sinks/base_sink.h>

// Standard error as a sink of spdlog.
namespace quire {

/// Writes to standard error; waits as any program does for who reads it, until do_not_block() limits
/// that. Of a terminal that shows colours, the level's letter has one.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  using Clock = std::chrono::steady_clock;

  StderrSink();
  ~StderrSink() override;

  /// From here on no write blocks longer than until `set_deadline`'s time, and `dropped`, a number of lines
  /// that only grows, is told when it has grown. Where standard error cannot be opened a second time (a
  /// terminal of another user), a write may block all the same, if another program fills it between the
  /// question and the write.
  void do_not_block(std::function<size_t()> dropped);
  /// What cannot be written by then is lost.
  void set_deadline(Clock::time_point time) { deadline_ = time.time_since_epoch().count(); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  void tell_of_dropped();
  void write(std::string_view text);
  bool wait_for_reader() const;

  bool colored_;
  int own_fd_ = -1;  // standard error opened anew, without blocking; -1: none
  bool is_socket_ = false;
  bool may_block_ = true;
  std::function<size_t()> dropped_;
  size_t told_ = 0;
  std::atomic<Clock::rep> deadline_ = Clock::time_point::max().time_since_epoch().count();
};

}  // namespace quire
