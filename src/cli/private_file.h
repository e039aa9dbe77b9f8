#pragma once

#include <filesystem>
#include <string_view>

namespace quire::cli {

/// Writes `text` to a file that only its owner may read (mode 0600), beside `path` first, so that what is
/// there stays whole if this fails. Throws Error with the path.
void write_private_file(const std::filesystem::path& path, std::string_view text);

/// Adds `text` at the end of such a file, which is made if it is not there. Throws Error with the path.
void append_to_private_file(const std::filesystem::path& path, std::string_view text);

}  // namespace quire::cli
