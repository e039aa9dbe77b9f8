#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string_view>

#include <spdlog/sinks/base_sink.h>

// Standard error as an spdlog sink.
namespace quire {

/// Writes to standard error. A write blocks until standard error is read, unless do_not_block() limits that.
/// The letter of the level is coloured on a terminal that shows colours.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  using Clock = std::chrono::steady_clock;

  StderrSink();
  ~StderrSink() override;

  /// From now on no write blocks beyond the time given to `set_deadline`, and when `dropped`, an increasing
  /// number of lines, has grown, the sink reports it. If standard error cannot be opened a second time (a
  /// terminal of another user), a write may still block if another program fills it between the check and the
  /// write.
  void do_not_block(std::function<size_t()> dropped);
  /// Lines that cannot be written by then are lost.
  void set_deadline(Clock::time_point time) { deadline_ = time.time_since_epoch().count(); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  void tell_of_dropped();
  void write(std::string_view text);
  bool wait_for_reader() const;

  bool colored_;
  int own_fd_ = -1;  // standard error opened a second time, non-blocking; -1: none
  bool is_socket_ = false;
  bool may_block_ = true;
  std::function<size_t()> dropped_;
  size_t told_ = 0;
  std::atomic<Clock::rep> deadline_ = Clock::time_point::max().time_since_epoch().count();
};

}  // namespace quire
