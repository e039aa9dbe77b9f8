#pragma once

#include <filesystem>
#include <string_view>

#include "base/json.h"

namespace quire::formats {

/// Writes one JSON document. Throws Error on I/O failure.
void write_json_file(const std::filesystem::path& path, const json::value& value);

/// Writes a file with these bytes. Throws Error on I/O failure.
void write_binary_file(const std::filesystem::path& path, std::string_view bytes);

/// Creates the directory and its parents. Throws Error with the path on failure.
void make_directory(const std::filesystem::path& dir);

}  // namespace quire::formats
