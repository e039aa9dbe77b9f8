#include "base/output_file.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

Error cannot_be_written(const fs::path& path, const std::string& why) {
  return file_error(path, fmt::format("cannot be written: {}", why));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

bool may_write(const fs::path& path, int also = 0) {
  return faccessat(AT_FDCWD, path.c_str(), W_OK | also, AT_EACCESS) == 0;
}

void check_folder(const fs::path& path, const fs::path& folder) {
  std::error_code none;
  if (!fs::exists(folder, none)) {
    throw cannot_be_written(path, fmt::format("there is no folder {}", folder.string()));
  }
  if (!fs::is_directory(folder, none)) {
    throw cannot_be_written(path, fmt::format("{} is no folder", folder.string()));
  }
  if (!may_write(folder, X_OK)) throw cannot_be_written(path, std::strerror(errno));
}

/// A file descriptor that is always closed.
class OpenFile {
 public:
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  bool write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  }
  bool close() { return ::close(std::exchange(descriptor_, -1)) == 0; }

 private:
  int descriptor_;
};

/// Appends to the earlier output.
void write_to(int descriptor, const fs::path& path, std::string_view bytes) {
  std::fflush(stdout);
  OpenFile file(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!file.is_open() || !file.write(bytes) || !file.close()) {
    throw cannot_be_written(path, std::strerror(errno));
  }
}

/// Writes to the existing target, whatever its type.
void write_in_place(const fs::path& path, std::string_view bytes, std::optional<mode_t> mode) {
  OpenFile file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode.value_or(0666)));
  std::error_code none;
  const bool sets_mode = mode && fs::is_regular_file(path, none);
  if (!file.is_open() || (sets_mode && ::fchmod(file.get(), *mode) != 0) || !file.write(bytes) ||
      !file.close()) {
    throw cannot_be_written(path, std::strerror(errno));
  }
}

/// The permissions of a new file, or of the file that is replaced.
mode_t permissions(const fs::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0) return facts.st_mode & 07777U;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666U & ~mask;
}

/// The descriptor of /dev/stdout, /dev/fd/N and links to them. The file must not be opened again, because
/// that would write from its beginning.
std::optional<int> own_descriptor(fs::path path) {
  constexpr int kMostLinks = 40;
  std::error_code none;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, none); ++i) {
    const std::string name = path.filename().string();
    const fs::path folder = folder_of(path);
    const bool is_own = folder == "/proc/self/fd" || folder == "/dev/fd";
    int descriptor = 0;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), descriptor);
    if (is_own && failed == std::errc() && end == name.data() + name.size()) return descriptor;
    const fs::path target = fs::read_symlink(path, none);
    path = target.is_absolute() ? target : folder / target;
  }
  return std::nullopt;
}

void refuse_other_kinds(const fs::path& path, const FileKind& kind) {
  if (own_descriptor(path)) return;
  std::error_code none;
  const fs::path place = followed(path);
  if (!fs::is_regular_file(place, none)) return;
  const OpenFile file(::open(place.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) throw cannot_be_written(path, std::strerror(errno));
  quire::refuse_other_kinds(file.get(), path, kind);
}

/// Where the links of a path lead. Throws Error if that is to each other.
fs::path place_of(const fs::path& path) {
  std::error_code none;
  fs::path place = followed(path);
  if (fs::is_symlink(place, none)) throw cannot_be_written(path, std::strerror(ELOOP));
  return place;
}

/// For mkostemp().
std::string other_name(const fs::path& place) {
  return (folder_of(place) / fmt::format(".{}.XXXXXX", place.filename().string())).string();
}

/// A new file of another name beside a regular file, or where there is none; -1 if there cannot be one, or
/// something else is there.
int open_beside(const fs::path& place, std::string& temporary) {
  std::error_code none;
  errno = 0;
  if (fs::exists(place, none) && !fs::is_regular_file(place, none)) return -1;
  temporary = other_name(place);
  return ::mkostemp(temporary.data(), O_CLOEXEC);
}

/// For a path that does not exist: its canonical folder, and the name.
fs::path absolute_place(const fs::path& path) {
  std::error_code none;
  const fs::path place = followed(path);
  return fs::weakly_canonical(fs::absolute(folder_of(place), none), none) / place.filename();
}

bool is_same_file(const fs::path& a, const fs::path& b) {
  struct stat of_a {};
  struct stat of_b {};
  const bool has_a = ::stat(a.c_str(), &of_a) == 0;
  const bool has_b = ::stat(b.c_str(), &of_b) == 0;
  if (has_a != has_b) return false;
  if (!has_a) return absolute_place(a) == absolute_place(b);
  return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino && !S_ISCHR(of_a.st_mode);
}

}  // namespace

fs::path followed(fs::path path) {
  constexpr int kMostLinks = 40;  // as Linux has it
  std::error_code none;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, none); ++i) {
    const fs::path target = fs::read_symlink(path, none);
    path = target.is_absolute() ? target : path.parent_path() / target;
  }
  return path;
}

void check_output_file(const fs::path& path) {
  if (path.empty()) return;
  const fs::path place = place_of(path);
  std::error_code none;
  if (fs::is_directory(place, none)) throw cannot_be_written(path, "it is a folder");
  if (fs::exists(place, none)) {
    if (!may_write(place)) throw cannot_be_written(path, std::strerror(errno));
    return;
  }
  check_folder(path, folder_of(place));
}

void check_output_file(const fs::path& path, const FileKind& kind) {
  check_output_file(path);
  if (!path.empty()) refuse_other_kinds(path, kind);
}

void check_output_directory(const fs::path& path) {
  std::error_code none;
  fs::path there = followed(path);
  if (fs::exists(there, none) && !fs::is_directory(there, none)) {
    throw cannot_be_written(path, "a file of that name exists");
  }
  while (!fs::exists(there, none) && there.has_parent_path() && there.parent_path() != there) {
    there = there.parent_path();
  }
  if (!fs::exists(there, none)) there = ".";
  check_folder(path, there);
}

void refuse_same_file(std::span<const OutputFile> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const OutputFile& one = outputs[i];
      const OutputFile& other = outputs[j];
      if (one.flag == other.flag || one.path.empty() || other.path.empty()) continue;
      if (!is_same_file(one.path, other.path)) continue;
      throw Error(fmt::format("{}: {} is also the file of {}: each needs its own file", one.flag,
                              one.path.string(), other.flag));
    }
  }
}

void write_output_file(const fs::path& path, const FileKind& kind, std::string_view bytes) {
  refuse_other_kinds(path, kind);
  replace_file(path, bytes, {});
}

void replace_file(const fs::path& path, std::string_view bytes, std::optional<mode_t> mode) {
  if (const auto descriptor = own_descriptor(path)) return write_to(*descriptor, path, bytes);
  const fs::path place = place_of(path);
  std::error_code none;
  const bool exists = fs::exists(place, none);
  std::string temporary;
  OpenFile file(open_beside(place, temporary));
  // A writable file in a folder that is not writable.
  if (!file.is_open() && exists) return write_in_place(place, bytes, mode);
  if (!file.is_open()) throw cannot_be_written(path, std::strerror(errno));
  const bool is_whole =
      ::fchmod(file.get(), mode ? *mode : permissions(place)) == 0 && file.write(bytes) && file.close();
  if (is_whole && ::rename(temporary.c_str(), place.c_str()) == 0) return;
  const int why = errno;
  ::unlink(temporary.c_str());
  throw cannot_be_written(path, std::strerror(why));
}

GrowingFile::GrowingFile(const fs::path& path) : path_(path) {
  int file = -1;
  if (const auto descriptor = own_descriptor(path)) {
    is_direct_ = true;
    std::fflush(stdout);
    file = ::fcntl(*descriptor, F_DUPFD_CLOEXEC, 0);
  } else {
    place_ = place_of(path);
    std::error_code none;
    const bool exists = fs::exists(place_, none);
    is_direct_ = exists && (!fs::is_regular_file(place_, none) || !may_write(folder_of(place_), X_OK));
    if (is_direct_) {
      file = ::open(place_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
    } else {
      // Without a name, or where a file system has no such files, with another.
      file = ::open(folder_of(place_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
      if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
        temporary_ = other_name(place_);
        file = ::mkostemp(temporary_.data(), O_CLOEXEC);
        if (file < 0) temporary_.clear();
      }
    }
  }
  if (file < 0) throw cannot_be_written(path_, std::strerror(errno));
  file_ = ::fdopen(file, "wb");
  if (file_ != nullptr) return;
  const int why = errno;  // a closed standard output is open for reading (cli/process.h)
  ::close(file);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  throw cannot_be_written(path_, std::strerror(why == EINVAL ? EBADF : why));
}

GrowingFile::~GrowingFile() {
  if (file_ != nullptr) std::fclose(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void GrowingFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
    throw cannot_be_written(path_, std::strerror(errno));
  }
}

bool GrowingFile::take_its_name() {
  if (::fchmod(::fileno(file_), permissions(place_)) != 0) return false;
  if (temporary_.empty()) {
    std::string name = other_name(place_);
    const int taken = ::mkostemp(name.data(), O_CLOEXEC);
    if (taken < 0) return false;
    ::close(taken);
    ::unlink(name.c_str());
    const std::string unnamed = fmt::format("/proc/self/fd/{}", ::fileno(file_));
    if (::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) return false;
    temporary_ = name;
  }
  if (::rename(temporary_.c_str(), place_.c_str()) != 0) return false;
  temporary_.clear();
  return true;
}

void GrowingFile::finish() {
  if (std::fflush(file_) != 0 || (!is_direct_ && !take_its_name()) ||
      std::fclose(std::exchange(file_, nullptr)) != 0) {
    throw cannot_be_written(path_, std::strerror(errno));
  }
}

}  // namespace quire
