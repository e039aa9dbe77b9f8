#pragma once

#include <filesystem>
#include <string_view>

namespace quire::cli {

/// Where a chain of symbolic links leads, whether there is something or not; a link where they lead in a
/// circle.
std::filesystem::path followed(std::filesystem::path path);

/// Throws Error naming `path` if no file can be written there: its folder is absent or read-only, or what is
/// there is a directory or may not be written. Makes and changes nothing, so that who calls this before the
/// work leaves nothing behind when the work fails. An empty path means that no file is wanted.
void check_output_file(const std::filesystem::path& path);

/// Throws Error naming `path` if no directory can be made there, or written to if it exists.
void check_output_directory(const std::filesystem::path& path);

/// Writes a file of these bytes under another name, which takes its place when all of them are written: who
/// reads it meanwhile has the former contents. What is no regular file (a pipe, /dev/stdout) is written to as
/// it is. Throws Error naming `path`.
void write_output_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace quire::cli
