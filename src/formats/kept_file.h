#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>

#include "base/json.h"

// Common parts of the files that quire keeps for its next start: they name the facts that they depend on,
// they have checksums, and a new file replaces the old one atomically.
namespace quire::formats {

/// XXH3 with 64 bits; written as 16 hexadecimal digits.
uint64_t checksum(std::span<const std::byte> bytes);
std::string checksum_text(uint64_t checksum);

/// Throws Error naming file, fact and both values if `written` has a different value for one of the facts in
/// `here`.
void require_same_facts(const JsonObject& written, const json::object& here);

/// Throws Error with the path and the reason if a user other than this process's user, root and
/// `also_trusted` may create or replace files in the folder of `path`. A group counts as its user's own if it
/// has the user's name and no other member; in a folder like /tmp, only owners may replace files.
void refuse_folder_of_others(const std::filesystem::path& path, std::optional<uid_t> also_trusted = {});
/// The same, and also throws if such a user may write `path` itself, an existing file.
void refuse_file_of_others(const std::filesystem::path& path, std::optional<uid_t> also_trusted = {});

/// A temporary file beside `path` that replaces it when it is complete. Processes that have the old file
/// mapped keep it. One process at a time writes; the leftover of a killed process is overwritten.
class FileReplacement {
 public:
  /// `mode`: the permissions, as in open(2). Throws Error with the path if it cannot be written there.
  FileReplacement(std::filesystem::path path, mode_t mode);
  /// Removes the temporary file, unless commit() succeeded.
  ~FileReplacement();
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  /// Another process is writing the same file: data written here is dropped.
  bool is_taken() const { return file_ < 0; }
  uint64_t size() const { return size_; }
  /// Appends. Throws Error with the path.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Appends zeros up to a multiple of `alignment`.
  void pad(uint64_t alignment);
  /// Replaces `path`. Throws Error with the path.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path beside_;
  int file_ = -1;
  uint64_t size_ = 0;
};

}  // namespace quire::formats
