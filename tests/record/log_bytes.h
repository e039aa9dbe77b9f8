#pragma once

#include <filesystem>
#include <string>

#include "record/block_reader.h"
#include "record/run_format.h"

namespace quire::test {

/// A decision log with this first line (without its end) and these records, whatever they are, in one block
/// whose checksums are right.
inline std::string log_of(const std::string& line, const std::string& records,
                          const std::string& index = {}) {
  const std::string first = line + "\n";
  return first + record::block_head(0, 0, index, records, record::checksum(first, 0)) + index + records;
}

/// What a log consists of.
struct LogParts {
  std::string line;  // without its end
  std::string index;
  std::string records;  // of all blocks
};

inline LogParts parts_of(const std::filesystem::path& path) {
  record::BlockReader blocks(path);
  LogParts out;
  out.line = blocks.first_line().substr(0, blocks.first_line().size() - 1);
  while (blocks.next(true)) {
    out.index += blocks.index();
    out.records += blocks.records();
  }
  return out;
}

}  // namespace quire::test
