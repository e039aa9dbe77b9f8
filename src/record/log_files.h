#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_kind.h"
#include "control/config.h"
#include "record/block_reader.h"

// The files of a decision log. It is one file, or it is written in parts (RunWriter): part N of run.log is
// run.log.N once part N + 1 has begun, and run.log is the latest.
namespace quire::record {

/// What every decision log begins with.
FileKind decision_log_kind();

/// Reads a value of --decision-log-max; 0, that is no limit, if it is empty. Throws Error naming the flag.
uint64_t parse_log_limit(const std::string& text);

std::filesystem::path part_path(const std::filesystem::path& log, uint64_t part);

/// The numbers N for which there is a file run.log.N, ascending, whatever these files are.
std::vector<uint64_t> numbered_files(const std::filesystem::path& log);
/// Whether the file is empty or a part of a decision log.
bool is_part(const std::filesystem::path& path);

/// The first line of a decision log.
struct LogHeader {
  uint64_t part = 1;
  uint64_t steps_before = 0;  // planned before this part
  control::SchedulerConfig config;
  std::string warning;  // why the times may not be what they seem
};
/// Throws Error naming `path` and the key.
LogHeader read_header(const std::filesystem::path& path, std::string_view first_line);

/// An open log.
struct OpenLog {
  struct Part {
    LogHeader header;
    BlockReader blocks;
  };
  std::vector<Part> parts;  // without gaps; only the first ones may be absent
  bool is_single = false;   // one part of a log, by its own name

  uint64_t num_bytes() const;
};
/// Opens `path`: a log with all its parts, or one of its parts. The log may be written meanwhile. Throws
/// Error as BlockReader and read_header do.
OpenLog open_log(const std::filesystem::path& path);

}  // namespace quire::record
