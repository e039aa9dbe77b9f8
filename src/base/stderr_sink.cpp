#include "base/stderr_sink.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <spdlog/details/os.h>

namespace quire {
namespace {

constexpr int kLookMs = 50;  // how often a stalled write looks at its deadline

std::string_view color_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::debug:
      return "\033[36m";
    case spdlog::level::info:
      return "\033[32m";
    case spdlog::level::warn:
      return "\033[33m\033[1m";
    default:
      return "\033[31m\033[1m";
  }
}

}  // namespace

StderrSink::StderrSink()
    : colored_(spdlog::details::os::in_terminal(stderr) && spdlog::details::os::is_color_terminal()) {}

StderrSink::~StderrSink() {
  if (own_fd_ >= 0) close(own_fd_);
}

void StderrSink::do_not_block(std::function<size_t()> dropped) {
  struct stat facts {};
  const bool known = fstat(STDERR_FILENO, &facts) == 0;
  is_socket_ = known && S_ISSOCK(facts.st_mode);
  // O_NONBLOCK on a shared descriptor would affect the other programs too.
  if (known && (S_ISFIFO(facts.st_mode) || S_ISCHR(facts.st_mode))) {
    own_fd_ = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  }
  dropped_ = std::move(dropped);
  may_block_ = false;
}

void StderrSink::sink_it_(const spdlog::details::log_msg& message) {
  tell_of_dropped();
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  const std::string_view text(line.data(), line.size());
  if (!colored_ || message.color_range_end <= message.color_range_start) {
    write(text);
    return;
  }
  write(
      fmt::format("{}{}{}\033[m{}", text.substr(0, message.color_range_start), color_of(message.level),
                  text.substr(message.color_range_start, message.color_range_end - message.color_range_start),
                  text.substr(message.color_range_end)));
}

void StderrSink::tell_of_dropped() {
  if (!dropped_) return;
  const size_t dropped = dropped_();
  const size_t before = std::exchange(told_, dropped);
  if (dropped != before)
    write(fmt::format("W {} log lines are lost: standard error was not read in time\n", dropped - before));
}

bool StderrSink::wait_for_reader() const {
  pollfd wanted{own_fd_ >= 0 ? own_fd_ : STDERR_FILENO, POLLOUT, 0};
  for (;;) {
    const auto left = Clock::time_point(Clock::duration(deadline_)) - Clock::now();
    if (poll(&wanted, 1, 0) > 0) return true;
    if (left <= Clock::duration::zero()) return false;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
    if (poll(&wanted, 1, static_cast<int>(std::min<int64_t>(kLookMs, ms + 1))) > 0) return true;
  }
}

void StderrSink::write(std::string_view text) {
  while (!text.empty()) {
    if (!may_block_ && !wait_for_reader()) return;
    // A pipe that is ready takes so many bytes without blocking.
    const size_t most = may_block_ || own_fd_ >= 0 ? text.size() : std::min<size_t>(text.size(), PIPE_BUF);
    const ssize_t written = is_socket_ && !may_block_
                                ? send(STDERR_FILENO, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                                : ::write(own_fd_ >= 0 ? own_fd_ : STDERR_FILENO, text.data(), most);
    if (written > 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (written < 0 && errno == EAGAIN && may_block_) {
      // Another program that shares standard error has made it non-blocking; this write blocks as it
      // otherwise would.
      pollfd wanted{STDERR_FILENO, POLLOUT, 0};
      poll(&wanted, 1, -1);
    } else if (written == 0 || (errno != EINTR && errno != EAGAIN)) {
      return;  // the reader has exited or the disk is full: this line is lost, but the next may not be
    }
  }
}

}  // namespace quire
