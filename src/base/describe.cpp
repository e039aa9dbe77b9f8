#include "base/describe.h"

#include <filesystem>
#include <new>
#include <stdexcept>

#include <fmt/format.h>

namespace quire {

std::string describe(const std::exception& error) {
  // A length_error is a vector or a string longer than any memory.
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr) {
    return kOutOfMemory;
  }
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    const std::string reason = file->code().message();
    if (file->path1().empty()) return reason;
    if (file->path2().empty()) return fmt::format("{}: {}", file->path1().string(), reason);
    return fmt::format("{}: {} ({})", file->path1().string(), reason, file->path2().string());
  }
  return error.what();
}

std::string describe_current_exception() noexcept {
  try {
    try {
      throw;
    } catch (const std::exception& error) {
      return describe(error);
    } catch (...) {
      return "unknown error";
    }
  } catch (...) {
    return kOutOfMemory;
  }
}

}  // namespace quire
