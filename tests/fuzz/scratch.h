#pragma once

#include <filesystem>
#include <string_view>

namespace quire::fuzz {

/// A directory of this process in memory, gone at its end, for loaders that want files.
const std::filesystem::path& scratch_dir();

/// Writes (anew) a file below it, in folders that are made, and returns its path.
std::filesystem::path scratch_file(std::string_view name, std::string_view content);

}  // namespace quire::fuzz
