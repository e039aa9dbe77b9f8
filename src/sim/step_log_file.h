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
  std::vector<backend::StepRecord> records;
};

/// Reads one file. Throws Error "PATH: line N: WHAT": a number that is missing, negative or no integer, by
/// the name of its column; of another version, both versions. A last line that was cut off is left out.
StepLogFile read_step_log(const std::filesystem::path& path);

}  // namespace quire::sim
