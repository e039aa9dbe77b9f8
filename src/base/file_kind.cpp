#include "base/file_kind.h"

#include <cerrno>
#include <string>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "base/file_error.h"

namespace quire {

void refuse_other_kinds(int file, const std::filesystem::path& path, const FileKind& kind) {
  std::string found(kind.at + kind.begins.size(), '\0');
  const ssize_t got = pread(file, found.data(), found.size(), 0);
  if (got < 0) {
    throw file_error(path, fmt::format("cannot be read: {}", std::generic_category().message(errno)));
  }
  found.resize(static_cast<size_t>(got));
  if (found.empty()) return;
  if (found.size() > kind.at && kind.begins.starts_with(std::string_view(found).substr(kind.at))) return;
  throw file_error(
      path, fmt::format("is not a {} and is not overwritten (delete it, or choose another name)", kind.name));
}

}  // namespace quire
