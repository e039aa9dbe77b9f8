#pragma once

#include <filesystem>
#include <string_view>

#include "base/json.h"

namespace quire::formats {

/// Writes one JSON document. Throws Error on I/O failure.
void write_json_file(const std::filesystem::path& path, const json::value& value);

/// Writes a file of these bytes. Throws Error on I/O failure.
void write_binary_file(const std::filesystem::path& path, std::string_view bytes);

/// Makes the directory and those above it. Throws Error with the path if it cannot.
void make_directory(const std::filesystem::path& dir);

}  // namespace quire::formats
