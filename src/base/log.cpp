#include "base/log.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <pthread.h>

#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/spdlog.h>

#include "base/log_thread.h"
#include "base/stderr_sink.h"

namespace quire {
namespace {

constexpr size_t kMostWaiting = 4096;  // lines
constexpr auto kLastWrites = std::chrono::seconds(1);
constexpr const char* kName = "quire";
constexpr const char* kPattern = "%^%L%$ %H:%M:%S %v";

std::atomic<size_t> lost_lines = 0;  // lost for lack of memory, and not reported yet
/// Instead of spdlog's own, which writes to standard error itself, in its own form.
void note_lost_line(const std::string& /*why*/) { ++lost_lines; }

/// The logger that callers use when there is no LogThread.
spdlog::logger& direct_logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>(kName, std::make_shared<StderrSink>());
    made->set_pattern(kPattern);
    made->set_error_handler(note_lost_line);
    return made;
  }();
  return *instance;
}

std::atomic<spdlog::logger*> in_thread = nullptr;

spdlog::logger& logger() {
  spdlog::logger* threaded = in_thread.load(std::memory_order_acquire);
  return threaded != nullptr ? *threaded : direct_logger();
}

void set_level(spdlog::level::level_enum level) {
  direct_logger().set_level(level);
  logger().set_level(level);
}

void log(spdlog::level::level_enum level, std::string_view message) noexcept {
  try {
    if (const size_t lost = lost_lines.exchange(0); lost > 0) {
      logger().warn("log lines are lost because memory ran out: {}", lost);
    }
    logger().log(level, "{}", message);
  } catch (...) {
    ++lost_lines;
  }
}

/// A reader that exits causes an error of write() and does not end the program.
void block_sigpipe() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

struct LogThread::Impl {
  std::shared_ptr<StderrSink> sink = std::make_shared<StderrSink>();
  std::shared_ptr<spdlog::details::thread_pool> pool =
      std::make_shared<spdlog::details::thread_pool>(kMostWaiting, 1, block_sigpipe);
  std::shared_ptr<spdlog::async_logger> logger = std::make_shared<spdlog::async_logger>(
      kName, sink, pool, spdlog::async_overflow_policy::overrun_oldest);
};

LogThread::LogThread() : impl_(std::make_unique<Impl>()) {
  impl_->logger->set_pattern(kPattern);
  impl_->logger->set_error_handler(note_lost_line);
  impl_->logger->set_level(direct_logger().level());
  impl_->sink->do_not_block([pool = impl_->pool.get()] { return pool->overrun_counter(); });
  in_thread.store(impl_->logger.get(), std::memory_order_release);
}

LogThread::~LogThread() {
  in_thread.store(nullptr, std::memory_order_release);
  impl_->sink->set_deadline(StderrSink::Clock::now() + kLastWrites);
  impl_->pool.reset();  // joins; its thread releases the logger first
  impl_->logger.reset();
}

void set_log_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      set_level(spdlog::level::debug);
      break;
    case LogLevel::kInfo:
      set_level(spdlog::level::info);
      break;
    case LogLevel::kWarning:
      set_level(spdlog::level::warn);
      break;
    case LogLevel::kError:
      set_level(spdlog::level::err);
      break;
    case LogLevel::kOff:
      set_level(spdlog::level::off);
      break;
  }
}

void log_debug(std::string_view message) { log(spdlog::level::debug, message); }
void log_info(std::string_view message) { log(spdlog::level::info, message); }
void log_warning(std::string_view message) { log(spdlog::level::warn, message); }
void log_error(std::string_view message) { log(spdlog::level::err, message); }

}  // namespace quire
