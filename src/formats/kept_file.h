#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>

#include "base/json.h"

// What the files that quire keeps for its next start have in common: they name what they depend on, they have
// checksums, and they take one another's place whole.
namespace quire::formats {

/// XXH3 of 64 bits; as it is written: 16 hexadecimal digits.
uint64_t checksum(std::span<const std::byte> bytes);
std::string checksum_text(uint64_t checksum);

/// Throws Error naming file, fact and both values if `written` has another value for one of the facts `here`.
void require_same_facts(const JsonObject& written, const json::object& here);

/// Throws Error with the path and the reason if a user may make or replace files in the folder of `path` who
/// is neither this process's, nor root, nor `also_trusted`. A group counts as its user's own where it has the
/// user's name and no other member; in a folder like /tmp, files are replaced only by their owners.
void refuse_folder_of_others(const std::filesystem::path& path, std::optional<uid_t> also_trusted = {});
/// The same, and if such a user may write `path` itself, an existing file.
void refuse_file_of_others(const std::filesystem::path& path, std::optional<uid_t> also_trusted = {});

/// A file beside another one, whose place it takes when it is complete. Those that have the other one mapped
/// keep it. One process at a time writes it; what a killed one left is written over.
class FileReplacement {
 public:
  /// `mode`: who may read it, as of open(2). Throws Error with the path if nothing can be written there.
  FileReplacement(std::filesystem::path path, mode_t mode);
  /// Removes it, unless it has taken the other's place.
  ~FileReplacement();
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  /// Another process is writing the same file: what is written here is dropped.
  bool is_taken() const { return file_ < 0; }
  uint64_t size() const { return size_; }
  /// At its end. Throws Error with the path.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Zeros up to a multiple of `alignment`.
  void pad(uint64_t alignment);
  /// Takes the place. Throws Error with the path.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path beside_;
  int file_ = -1;
  uint64_t size_ = 0;
};

}  // namespace quire::formats
