#pragma once

#include <fstream>
#include <string>

#include "base/file_kind.h"
#include "sim/simulation.h"
#include "sim/slo.h"

// Tables of one simulation as files of comma-separated values.
namespace quire::cli {

/// A row for each step, as it is made. Without a path it does nothing. Throws Error naming the file if it
/// cannot be written.
class StepTable {
 public:
  explicit StepTable(std::string path);
  void add(const sim::Simulation& simulation);
  void end();

  static const FileKind kKind;

 private:
  std::string path_;
  std::ofstream file_;
};

extern const FileKind kRequestTable;
/// A row for each request; empty cells: it did not happen.
std::string request_table(const sim::Simulation& simulation, const sim::Slo& slo);

}  // namespace quire::cli
