#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace quire {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = spdlog::stderr_color_mt("quire");
    made->set_pattern("%^%L%$ %H:%M:%S %v");
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      logger().set_level(spdlog::level::debug);
      break;
    case LogLevel::kInfo:
      logger().set_level(spdlog::level::info);
      break;
    case LogLevel::kWarning:
      logger().set_level(spdlog::level::warn);
      break;
    case LogLevel::kError:
      logger().set_level(spdlog::level::err);
      break;
    case LogLevel::kOff:
      logger().set_level(spdlog::level::off);
      break;
  }
}

void log_debug(std::string_view message) { logger().debug("{}", message); }
void log_info(std::string_view message) { logger().info("{}", message); }
void log_warning(std::string_view message) { logger().warn("{}", message); }
void log_error(std::string_view message) { logger().error("{}", message); }

}  // namespace quire
