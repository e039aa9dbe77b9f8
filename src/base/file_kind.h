#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace quire {

/// What tells the files of one kind from all others.
struct FileKind {
  std::string_view name;    // "decision log"
  std::string_view begins;  // bytes that each of them has ...
  size_t at = 0;            // ... from this one on
};

/// Throws Error naming `path` if the regular file `file`, open for reading there, has content that must not
/// be lost to a file of this kind: anything but nothing, one of its own kind, or one that was cut off before
/// the end of the bytes that tell it.
void refuse_other_kinds(int file, const std::filesystem::path& path, const FileKind& kind);

}  // namespace quire
