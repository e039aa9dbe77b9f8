#pragma once

#include <filesystem>
#include <string_view>

#include "base/file_kind.h"

namespace quire {

/// A file that a run writes from beginning to end and that only its user may read: its mode is 0600. It takes
/// the place of an empty file or of one of its own kind, of no other. A device or a pipe is written to as it
/// is. Move-only; one thread.
class PrivateFile {
 public:
  /// Throws Error with the path if it cannot be written, or has another kind of content, or belongs to
  /// another user, or if another program (or PrivateFile) has it open as such.
  PrivateFile(std::filesystem::path path, const FileKind& kind);
  ~PrivateFile();
  PrivateFile(PrivateFile&& other) noexcept;
  PrivateFile& operator=(PrivateFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Unbuffered. False if it fails, and from then on, with nothing written.
  bool write(std::string_view text);
  bool failed() const { return failed_; }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  bool failed_ = false;
};

/// Throws as PrivateFile would. Changes nothing, so that a command may ask before it begins.
void check_private_file(const std::filesystem::path& path, const FileKind& kind);

}  // namespace quire
