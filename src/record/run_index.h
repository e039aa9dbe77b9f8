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
  uint64_t steps = 0;
};

/// Reads the file without its records. Throws Error as BlockReader does, and for an invalid index.
RunIndex read_run_index(const std::filesystem::path& path);

}  // namespace quire::record
