#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/private_file.h"

namespace quire::record {

/// The files of a decision log that is being written (log_files.h). At any moment the files are a log that
/// can be read. For one thread.
class PartWriter {
 public:
  /// `most_bytes`: of all parts together; 0: the log is one file. Deletes the parts of a former log in the
  /// same place. Throws Error as PrivateFile does, and if a part's file could not be made.
  PartWriter(const std::filesystem::path& log, uint64_t most_bytes);
  /// Throws Error if the constructor would. Changes nothing.
  static void check_place(const std::filesystem::path& log, uint64_t most_bytes);

  /// Writes without a buffer, and then deletes the oldest parts as far as the limit demands; the present part
  /// stays, however long it is. False after a failure.
  bool write(std::string_view bytes);
  /// From now on, the next part is written, which begins with `line`. False after a failure.
  bool begin_next(std::string_view line);

 private:
  struct Part {
    uint64_t number = 0;
    uint64_t bytes = 0;
  };

  std::filesystem::path log_;
  uint64_t most_bytes_;
  std::optional<PrivateFile> file_;
  Part present_{1, 0};
  std::deque<Part> before_;  // the oldest first
  uint64_t bytes_ = 0;       // of all parts
  std::string warning_;      // made in advance, while there is memory; empty once it was given
};

}  // namespace quire::record
