#pragma once

#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "base/file_kind.h"

namespace quire {

/// The target of a chain of symbolic links, whether it exists or not; one of the links if they form a cycle.
std::filesystem::path followed(std::filesystem::path path);

/// Throws Error naming `path` if no file can be written there: its folder is absent or read-only, or `path`
/// is a directory or not writable. Creates and changes nothing, so that a command can check before it starts
/// to work. An empty path means that no file is wanted.
void check_output_file(const std::filesystem::path& path);
/// The same, and throws if a file of another kind is there.
void check_output_file(const std::filesystem::path& path, const FileKind& kind);

/// Throws Error naming `path` if no directory can be created there, or if an existing one is not writable.
void check_output_directory(const std::filesystem::path& path);

/// A file that a run writes, and its flag. An empty path means that no file is wanted.
struct OutputFile {
  std::string_view flag;
  std::filesystem::path path;
};
/// Throws Error naming two flags for the same file, through any names and links, whether it exists or not.
/// Several flags may name the same terminal or /dev/null.
void refuse_same_file(std::span<const OutputFile> outputs);

/// Writes a file with these bytes under a temporary name and renames it at the end: a concurrent reader gets
/// the old contents. A target that is not a regular file (a pipe) is written to directly, and /dev/stdout
/// after its earlier output. Throws Error naming `path`, also if a file of another kind is there.
void write_output_file(const std::filesystem::path& path, const FileKind& kind, std::string_view bytes);

/// The same, whatever file is there, with these permissions; nullopt: those of the replaced file, or those of
/// new files.
void replace_file(const std::filesystem::path& path, std::string_view bytes, std::optional<mode_t> mode);

/// A file that is written in pieces and appears under its name when it is complete, with the permissions of
/// the file that it replaces; a process that is killed leaves nothing. Written to directly are a target that
/// is not a regular file, /dev/stdout, after its earlier output, and a file whose folder may not be written.
class GrowingFile {
 public:
  /// Throws Error naming `path` if nothing can be written there.
  explicit GrowingFile(const std::filesystem::path& path);
  /// Leaves what was there before, unless finish() was called or the target is written to directly.
  ~GrowingFile();
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  /// Both throw Error naming the path.
  void write(std::string_view bytes);
  void finish();

 private:
  /// errno is why if it returns false.
  bool take_its_name();

  std::filesystem::path path_;   // as it was given
  std::filesystem::path place_;  // where its links lead
  bool is_direct_ = false;
  std::string temporary_;  // another name that it has now; empty if it has none
  std::FILE* file_ = nullptr;
};

}  // namespace quire
