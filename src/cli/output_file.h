#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <sys/types.h>

#include "base/file_kind.h"

namespace quire::cli {

/// Where a chain of symbolic links leads, whether there is something or not; a link where they lead in a
/// circle.
std::filesystem::path followed(std::filesystem::path path);

/// Throws Error naming `path` if no file can be written there: its folder is absent or read-only, or what is
/// there is a directory or may not be written. Makes and changes nothing, so that who calls this before the
/// work leaves nothing behind when the work fails. An empty path means that no file is wanted.
void check_output_file(const std::filesystem::path& path);
/// The same, and if a file of another kind is there.
void check_output_file(const std::filesystem::path& path, const FileKind& kind);

/// Throws Error naming `path` if no directory can be made there, or written to if it exists.
void check_output_directory(const std::filesystem::path& path);

/// A file that a run writes, and the flag that says so. An empty path means that no file is wanted.
struct Output {
  std::string_view flag;
  std::filesystem::path path;
};
/// Throws Error naming two flags that lead to one file, by whatever names and links, whether it is there or
/// not. Several may write to one terminal or to /dev/null.
void refuse_same_file(std::span<const Output> outputs);

/// Writes a file of these bytes under another name, which takes its place when all of them are written: who
/// reads it meanwhile has the former contents. What is no regular file (a pipe) is written to as it is, and
/// /dev/stdout behind what has been written there. Throws Error naming `path`, also if a file of another kind
/// is there.
void write_output_file(const std::filesystem::path& path, const FileKind& kind, std::string_view bytes);

/// The same whatever is there, with these permissions; nullopt: those of the file that is replaced, or those
/// that new files have here.
void replace_file(const std::filesystem::path& path, std::string_view bytes, std::optional<mode_t> mode);

}  // namespace quire::cli
