#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/error.h"

// Errors that name a file.
namespace quire {

/// "PATH: WHAT".
Error file_error(const std::filesystem::path& path, std::string_view what);
/// "PATH: at byte OFFSET: WHAT".
Error file_error(const std::filesystem::path& path, uint64_t offset, std::string_view what);

/// Throws if `bytes`, the contents of `path`, are a Git LFS pointer, which a clone without Git LFS has
/// instead of a large file.
void refuse_lfs_pointer(const std::filesystem::path& path, std::string_view bytes);

}  // namespace quire
