#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "backend/step_work.h"

namespace quire::sim {

/// A step log (engine::StepLog) as it was written.
struct StepLogFile {
  std::string model;
  std::string device;
  std::vector<backend::StepRecord> records;
};

/// Reads one file. Throws Error "PATH: line N: WHAT": a number that is missing, negative or no integer, by
/// the name of its column. A last line that was cut off is left out.
StepLogFile read_step_log(const std::filesystem::path& path);

}  // namespace quire::sim
