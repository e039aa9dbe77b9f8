#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace quire::record {

/// When a sequence of a recorded run arrived and ended: how many steps were planned before.
struct IndexedSequence {
  SeqId id = 0;
  std::string name;  // as recorded: any bytes
  uint64_t added = 0;
  std::optional<uint64_t> ended;  // not for a refused sequence
};

/// The indexes of all log blocks of a decision log.
struct RunIndex {
  std::vector<IndexedSequence> sequences;  // in order of arrival, including refused ones
  uint64_t steps_before = 0;               // planned before the log begins
  uint64_t steps = 0;                      // planned up to its end
};

/// Reads the files of a log (log_files.h) without their records. Throws Error as open_log does, and for an
/// invalid index.
RunIndex read_run_index(const std::filesystem::path& path);

}  // namespace quire::record
