#pragma once

#include <filesystem>
#include <string_view>

#include "base/file_kind.h"

namespace quire {

/// A file that a run writes from beginning to end and that only its user may read: its mode is 0600. It
/// overwrites an empty file or a file of its own kind, and no other file. A device or a pipe is written to as
/// it is. Move-only; for one thread.
class PrivateFile {
 public:
  /// Throws Error with the path if it cannot be written, or has another kind of content, or belongs to
  /// another user, or if another program (or another PrivateFile) has it open as such.
  PrivateFile(std::filesystem::path path, const FileKind& kind);
  ~PrivateFile();
  PrivateFile(PrivateFile&& other) noexcept;
  PrivateFile& operator=(PrivateFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Writes without a buffer. After a failure, this and all later calls write nothing and return false.
  bool write(std::string_view text);
  bool failed() const { return failed_; }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  bool failed_ = false;
};

/// Throws if PrivateFile's constructor would. Changes nothing, so that a command can check before it starts.
void check_private_file(const std::filesystem::path& path, const FileKind& kind);

}  // namespace quire
