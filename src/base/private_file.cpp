#include "base/private_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"

namespace quire {
namespace {

Error cannot_be_written(const std::filesystem::path& path, int code) {
  return file_error(path, fmt::format("cannot be written: {}", std::generic_category().message(code)));
}

/// Throws if the contents of the open, regular `file` must not be overwritten, or if it belongs to another
/// user. The lock ends with the last descriptor of `file`.
void check_content(int file, const std::filesystem::path& path, const FileKind& kind) {
  if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw file_error(path, "is being written by another program");
  }
  struct stat facts {};
  if (fstat(file, &facts) != 0) throw cannot_be_written(path, errno);
  refuse_other_kinds(file, path, kind);
  if (facts.st_uid != geteuid()) {
    throw file_error(path, fmt::format("belongs to another user (uid {}), who could read the {}",
                                       facts.st_uid, kind.name));
  }
}

bool is_other_than_regular(const std::filesystem::path& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode);
}

}  // namespace

PrivateFile::PrivateFile(std::filesystem::path path, const FileKind& kind) : path_(std::move(path)) {
  const bool special = is_other_than_regular(path_);
  file_ = special ? open(path_.c_str(), O_WRONLY | O_CLOEXEC)
                  : open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ < 0) throw cannot_be_written(path_, errno);
  if (special) return;
  try {
    check_content(file_, path_, kind);
    if (fchmod(file_, 0600) != 0 || ftruncate(file_, 0) != 0) throw cannot_be_written(path_, errno);
  } catch (...) {
    close(file_);
    throw;
  }
}

PrivateFile::~PrivateFile() {
  if (file_ >= 0) close(file_);
}

PrivateFile::PrivateFile(PrivateFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), failed_(other.failed_) {}

bool PrivateFile::write(std::string_view text) {
  while (!failed_ && !text.empty()) {
    const ssize_t written = ::write(file_, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (written == 0 || errno != EINTR) {
      failed_ = true;
    }
  }
  return !failed_;
}

void check_private_file(const std::filesystem::path& path, const FileKind& kind) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) {
    const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
    if (errno == ENOENT && access(folder.c_str(), W_OK) == 0) return;
    throw cannot_be_written(path, errno);
  }
  if (S_ISDIR(facts.st_mode)) throw cannot_be_written(path, EISDIR);
  if (!S_ISREG(facts.st_mode)) return;
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw cannot_be_written(path, errno);
  try {
    check_content(file, path, kind);
  } catch (...) {
    close(file);
    throw;
  }
  close(file);
}

}  // namespace quire
