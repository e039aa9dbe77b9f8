#include "base/error.h"

#include <fmt/format.h>

namespace quire {

Error file_error(const std::filesystem::path& path, std::string_view what) {
  return Error(fmt::format("{}: {}", path.string(), what));
}

Error file_error(const std::filesystem::path& path, uint64_t offset, std::string_view what) {
  return Error(fmt::format("{}: at byte {}: {}", path.string(), offset, what));
}

}  // namespace quire
