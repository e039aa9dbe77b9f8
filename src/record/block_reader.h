#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "record/run_format.h"

namespace quire::record {

/// Reads the log blocks of a decision log, one after the other, and checks them. Throws Error with file and
/// byte for any damage. Holds one log block in memory.
class BlockReader {
 public:
  /// Reads the first line. Throws Error also if the file is not a decision log.
  explicit BlockReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::string& first_line() const { return line_; }  // with its newline
  uint64_t num_bytes() const { return size_; }
  /// Reads the next log block, and its records only if `records_wanted`. False at the end, also if the file
  /// was cut off within a log block; then was_cut_off() is true.
  bool next(bool records_wanted);
  bool was_cut_off() const { return cut_off_; }

  uint64_t steps() const { return head_.steps; }  // planned up to the end of the log block
  const std::string& index() const { return index_; }
  const std::string& records() const { return records_; }
  uint64_t records_at() const { return records_at_; }  // their offset in the file

 private:
  void read(std::string& out, size_t bytes);
  Error damaged(uint64_t at, std::string_view what) const;

  std::filesystem::path path_;
  std::ifstream file_;
  uint64_t size_ = 0;
  uint64_t at_ = 0;
  std::string line_;
  uint32_t seed_ = 0;
  uint32_t number_ = 0;
  bool cut_off_ = false;
  BlockHead head_;
  std::string index_;
  std::string records_;
  uint64_t records_at_ = 0;
};

}  // namespace quire::record
