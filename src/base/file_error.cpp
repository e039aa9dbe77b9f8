#include "base/file_error.h"

#include <fmt/format.h>

namespace quire {

Error file_error(const std::filesystem::path& path, std::string_view what) {
  return Error(fmt::format("{}: {}", path.string(), what));
}

Error file_error(const std::filesystem::path& path, uint64_t offset, std::string_view what) {
  return Error(fmt::format("{}: at byte {}: {}", path.string(), offset, what));
}

void refuse_lfs_pointer(const std::filesystem::path& path, std::string_view bytes) {
  if (!bytes.starts_with("version https://git-lfs.github.com/spec/")) return;
  throw file_error(path, "a Git LFS pointer, not the file itself: 'git lfs pull' fetches it");
}

}  // namespace quire
