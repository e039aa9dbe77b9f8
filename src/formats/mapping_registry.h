#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// The mapped files and their addresses, for use in a signal handler.
namespace quire::formats {

/// Thread-safe.
void add_mapping(const std::byte* data, uint64_t size, const std::string& path);
void remove_mapping(const std::byte* data);

/// The path of the file that is mapped at `address`; nullptr: none. Async-signal-safe.
const char* mapped_path_at(const void* address);

}  // namespace quire::formats
