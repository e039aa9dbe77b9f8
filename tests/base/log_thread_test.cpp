// Logging where nobody, or somebody slow, reads standard error.
#include "base/log_thread.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <future>
#include <string>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/log.h"

namespace quire {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kLines = 10000;  // more than a pipe and the queue hold

/// Standard error is a pipe as long as this lives.
class PipedStderr {
 public:
  PipedStderr() {
    EXPECT_EQ(pipe(ends_), 0);
    former_ = dup(STDERR_FILENO);
    dup2(ends_[1], STDERR_FILENO);
    close(ends_[1]);
  }
  ~PipedStderr() {
    restore();
    close_reader();
  }
  void restore() {
    if (former_ >= 0) dup2(former_, STDERR_FILENO);
    if (former_ >= 0) close(former_);
    former_ = -1;
  }
  void close_reader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  static void fill() {
    const int flags = fcntl(STDERR_FILENO, F_GETFL);
    fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK);
    const std::string page(4096, '\n');
    while (write(STDERR_FILENO, page.data(), page.size()) > 0) {
    }
    fcntl(STDERR_FILENO, F_SETFL, flags);
  }
  /// Until `last` has been read, or no program writes any more.
  std::string read_until(const std::string& last) const {
    std::string out;
    char buffer[4096];
    for (ssize_t got = 1; got > 0 && out.find(last) == std::string::npos;) {
      got = read(ends_[0], buffer, sizeof(buffer));
      if (got > 0) out.append(buffer, static_cast<size_t>(got));
    }
    return out;
  }

 private:
  int ends_[2] = {-1, -1};
  int former_ = -1;
};

void log_lines() {
  for (int i = 0; i < kLines; ++i) log_info(fmt::format("line {}.", i));
}

TEST(LogThread, WritesWhatWasLoggedBeforeItEnds) {
  PipedStderr piped;
  {
    const LogThread thread;
    for (int i = 0; i < 100; ++i) log_info(fmt::format("line {}.", i));
    log_debug("unseen");
  }
  log_warning("after it");
  const std::string said = piped.read_until("after it\n");
  piped.restore();
  EXPECT_THAT(said, HasSubstr("I "));
  for (int i = 0; i < 100; ++i) EXPECT_THAT(said, HasSubstr(fmt::format(" line {}.\n", i)));
  EXPECT_THAT(said, Not(HasSubstr("unseen")));
  EXPECT_THAT(said, Not(HasSubstr("lost")));
}

TEST(LogThread, NobodyWaitsForAStalledReader) {
  PipedStderr piped;
  PipedStderr::fill();
  std::promise<void> ended;
  std::future<void> end = ended.get_future();
  std::thread logging([&ended] {
    {
      const LogThread thread;
      log_lines();
    }
    ended.set_value();
  });
  const bool in_time = end.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  const std::string rest = in_time ? "" : piped.read_until(fmt::format("line {}.\n", kLines - 1));
  logging.join();
  piped.restore();
  EXPECT_TRUE(in_time);
}

double cpu_seconds_of_this_thread() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

TEST(Log, WaitsWithoutWorkForAReaderOfANonBlockingPipe) {
  PipedStderr piped;
  PipedStderr::fill();
  fcntl(STDERR_FILENO, F_SETFL, fcntl(STDERR_FILENO, F_GETFL) | O_NONBLOCK);
  std::atomic<double> used = 0;
  std::thread logging([&used] {
    const double before = cpu_seconds_of_this_thread();
    log_info("the line that waits");
    used = cpu_seconds_of_this_thread() - before;
  });
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const std::string said = piped.read_until("the line that waits\n");
  logging.join();
  piped.restore();
  EXPECT_THAT(said, HasSubstr("the line that waits\n"));
  EXPECT_LT(used, 0.2);  // of two seconds
}

TEST(LogThread, SaysHowMuchASlowReaderLost) {
  PipedStderr piped;
  PipedStderr::fill();
  std::string said;
  {
    const LogThread thread;
    log_lines();
    said = piped.read_until(fmt::format("line {}.\n", kLines - 1));
  }
  piped.restore();
  EXPECT_THAT(said, HasSubstr(" log lines are lost"));
  EXPECT_THAT(said, HasSubstr(fmt::format("line {}.\n", kLines - 1)));
  EXPECT_THAT(said, Not(HasSubstr(fmt::format("line {}.\n", kLines / 2))));
}

TEST(LogThread, SurvivesAReaderThatGoesAway) {
  PipedStderr piped;
  {
    const LogThread thread;
    piped.close_reader();
    log_lines();
  }
  piped.restore();
}

TEST(LogThread, TheLevelIsTheSameInside) {
  PipedStderr piped;
  set_log_level(LogLevel::kWarning);
  {
    const LogThread thread;
    log_info("unseen");
    set_log_level(LogLevel::kInfo);
    log_info("seen");
  }
  log_info("the end");
  const std::string said = piped.read_until("the end\n");
  piped.restore();
  EXPECT_THAT(said, HasSubstr("seen"));
  EXPECT_THAT(said, Not(HasSubstr("unseen")));
}

}  // namespace
}  // namespace quire
