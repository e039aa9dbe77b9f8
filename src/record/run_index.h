#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace quire::record {

/// When a sequence of a recorded run came and ended: how many steps were planned before.
struct IndexedSequence {
  SeqId id = 0;
  std::string name;  // as recorded: any bytes
  uint64_t added = 0;
  std::optional<uint64_t> ended;  // not of one that was refused
};

/// What the blocks of a decision log say of themselves.
struct RunIndex {
  std::vector<IndexedSequence> sequences;  // in order of arrival, refused ones too
  uint64_t steps = 0;
};

/// Reads no record. Throws Error as BlockReader does, and for an index that is none.
RunIndex read_run_index(const std::filesystem::path& path);

}  // namespace quire::record
