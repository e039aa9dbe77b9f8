#include "cli/private_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"

namespace quire::cli {
namespace {

constexpr mode_t kOwnerOnly = 0600;

Error cannot_be_written(const std::filesystem::path& path) {
  return file_error(path, fmt::format("cannot be written: {}", std::generic_category().message(errno)));
}

/// `path`: what an error names.
void write_to(const std::filesystem::path& file, int flags, const std::filesystem::path& path,
              std::string_view text) {
  const int out = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, kOwnerOnly);
  if (out < 0) throw cannot_be_written(path);
  bool good = fchmod(out, kOwnerOnly) == 0;
  while (good && !text.empty()) {
    const ssize_t written = write(out, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    good = written >= 0;
    if (good) text.remove_prefix(static_cast<size_t>(written));
  }
  const int failed = errno;
  close(out);
  errno = failed;
  if (!good) throw cannot_be_written(path);
}

}  // namespace

void write_private_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path beside = path;
  beside += fmt::format(".{}.part", getpid());
  try {
    write_to(beside, O_TRUNC, path, text);
    if (rename(beside.c_str(), path.c_str()) != 0) throw cannot_be_written(path);
  } catch (...) {
    unlink(beside.c_str());
    throw;
  }
}

void append_to_private_file(const std::filesystem::path& path, std::string_view text) {
  write_to(path, O_APPEND, path, text);
}

}  // namespace quire::cli
