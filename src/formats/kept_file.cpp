#include "formats/kept_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>
#include <xxhash.h>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/file_error.h"

namespace quire::formats {
namespace {

constexpr size_t kMostWrittenAtOnce = size_t{1} << 30;

Error cannot_be_written(const std::filesystem::path& path, int code) {
  return file_error(path, fmt::format("cannot be written: {}", std::generic_category().message(code)));
}

/// A group that Debian and others make for each user.
bool is_own_group(gid_t group) {
  std::vector<char> space(size_t{1} << 16);
  passwd user{};
  passwd* found_user = nullptr;
  if (getpwuid_r(geteuid(), &user, space.data(), space.size(), &found_user) != 0 || found_user == nullptr) {
    return false;
  }
  const std::string name = user.pw_name;
  if (user.pw_gid != group) return false;
  ::group facts{};
  ::group* found = nullptr;
  if (getgrgid_r(group, &facts, space.data(), space.size(), &found) != 0 || found == nullptr) return false;
  if (name != facts.gr_name) return false;
  for (char** member = facts.gr_mem; *member != nullptr; ++member) {
    if (name != *member) return false;
  }
  return true;
}

void refuse_if_others_write(const std::filesystem::path& path, bool is_folder,
                            std::optional<uid_t> also_trusted) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) throw file_error(path, std::generic_category().message(errno));
  const uid_t owner = facts.st_uid;
  if (owner != geteuid() && owner != 0 && owner != also_trusted) {
    throw file_error(path, fmt::format("is not trusted: it belongs to another user (uid {})", owner));
  }
  if (is_folder && (facts.st_mode & S_ISVTX) != 0) return;
  const bool group_writes = (facts.st_mode & S_IWGRP) != 0 && !is_own_group(facts.st_gid);
  if (!group_writes && (facts.st_mode & S_IWOTH) == 0) return;
  throw file_error(path,
                   fmt::format("is not trusted: other users may write it (mode {:o}; chmod go-w fixes this)",
                               facts.st_mode & 07777));
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

void refuse_folder_of_others(const std::filesystem::path& path, std::optional<uid_t> also_trusted) {
  refuse_if_others_write(folder_of(path), true, also_trusted);
}

void refuse_file_of_others(const std::filesystem::path& path, std::optional<uid_t> also_trusted) {
  refuse_folder_of_others(path, also_trusted);
  std::error_code failed;
  const std::filesystem::path target = std::filesystem::canonical(path, failed);
  if (failed) throw file_error(path, failed.message());
  refuse_folder_of_others(target, also_trusted);  // where `path` is a link
  refuse_if_others_write(target, false, also_trusted);
}

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

FileReplacement::FileReplacement(std::filesystem::path path, mode_t mode)
    : path_(std::move(path)), beside_(path_) {
  beside_ += ".part";
  for (;;) {
    const int file = open(beside_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
    if (file < 0) throw cannot_be_written(path_, errno);
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
      close(file);
      return;
    }
    // The process that held the lock before may have renamed the file.
    struct stat locked {};
    struct stat named {};
    const bool same = fstat(file, &locked) == 0 && stat(beside_.c_str(), &named) == 0 &&
                      locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
    // Its owner, or a user with another link to it, could read and change the data.
    const bool foreign =
        same && (!S_ISREG(locked.st_mode) || locked.st_uid != geteuid() || locked.st_nlink != 1);
    if (same && !foreign && fchmod(file, locked.st_mode & mode) == 0 && ftruncate(file, 0) == 0) {
      file_ = file;
      return;
    }
    const int failed = errno;
    close(file);
    if (foreign) throw file_error(beside_, "is in the way: it belongs to another user, or has another name");
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
    const ssize_t written = ::write(file_, bytes.data(), std::min(bytes.size(), kMostWrittenAtOnce));
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

}  // namespace quire::formats
