#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "backend/step_work.h"

namespace quire::sim {

/// A step log (engine::StepLog) as it was written. What its first line lacks is empty, or 0.
struct StepLogFile {
  std::string model;
  std::string device;    // what Backend::describe said of it: the weights, their format, the kernels
  std::string machine;   // machine_name() where the steps ran
  uint32_t threads = 0;  // that computed; 0: of a simulated device
  std::string warning;   // why these steps may not be what they seem
  std::vector<backend::StepRecord> records;  // the first is that of line 2
  uint64_t cut_line = 0;  // a last line without its end, which is left out; 0: there is none
};

/// Reads one file. Throws Error "PATH: line N: WHAT": a number that is missing, negative, no integer, or not
/// possible beside the others and the head, by the name of its column; of another version, both versions.
/// A byte order mark before the first line is skipped.
StepLogFile read_step_log(const std::filesystem::path& path);

}  // namespace quire::sim
