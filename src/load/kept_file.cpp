#include "load/kept_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <xxhash.h>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

namespace quire {
namespace {

constexpr size_t kMostAtOnce = size_t{1} << 30;

Error cannot_be_written(const std::filesystem::path& path, int code) {
  return file_error(path, fmt::format("cannot be written: {}", std::generic_category().message(code)));
}

}  // namespace

uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string checksum_text(uint64_t checksum) { return fmt::format("{:016x}", checksum); }

void require_same_facts(const JsonObject& written, const json::object& here) {
  for (const auto& [name, value] : here) {
    const json::value* other = written.find(name);
    if (other != nullptr && *other == value) continue;
    throw written.error(
        name, fmt::format("is {}, and here {}", other == nullptr ? "missing" : json::serialize(*other),
                          json::serialize(value)));
  }
}

FileReplacement::FileReplacement(std::filesystem::path path) : path_(std::move(path)), beside_(path_) {
  beside_ += ".part";
  for (;;) {
    const int file = open(beside_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0) throw cannot_be_written(path_, errno);
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
      close(file);
      return;
    }
    // The one that had it until now may have given it the other's name.
    struct stat locked {};
    struct stat named {};
    const bool same = fstat(file, &locked) == 0 && stat(beside_.c_str(), &named) == 0 &&
                      locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
    if (same && ftruncate(file, 0) == 0) {
      file_ = file;
      return;
    }
    const int failed = errno;
    close(file);
    if (same) throw cannot_be_written(path_, failed);
  }
}

FileReplacement::~FileReplacement() {
  if (file_ < 0) return;
  unlink(beside_.c_str());
  close(file_);
}

void FileReplacement::write(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  while (file_ >= 0 && !bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), std::min(bytes.size(), kMostAtOnce));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw cannot_be_written(path_, written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void FileReplacement::pad(uint64_t alignment) {
  const uint64_t over = size_ % alignment;
  if (over != 0) write(std::string(alignment - over, '\0'));
}

void FileReplacement::commit() {
  if (file_ < 0) return;
  if (rename(beside_.c_str(), path_.c_str()) != 0) throw cannot_be_written(path_, errno);
  close(std::exchange(file_, -1));
}

}  // namespace quire
