#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace quire {

/// What distinguishes the files of one kind from all others.
struct FileKind {
  std::string_view name;    // "decision log"
  std::string_view begins;  // the bytes that every such file has ...
  size_t at = 0;            // ... from this offset on
};

/// Throws Error naming `path` if the regular file `file`, open for reading, has content that a file of this
/// kind must not overwrite. It may overwrite an empty file, a file of its own kind, and a file that was cut
/// off before the end of the distinguishing bytes.
void refuse_other_kinds(int file, const std::filesystem::path& path, const FileKind& kind);

}  // namespace quire
