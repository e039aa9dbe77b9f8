#pragma once

#include <fstream>
#include <string>

#include "base/file_kind.h"
#include "sim/kept_requests.h"
#include "sim/simulation.h"
#include "sim/slo.h"

// Tables of one simulation as files of comma-separated values.
namespace quire::cli {

// Where it is known whose times those of the steps are (cost_source), a last column says it.

/// A row for each step, as it is made. Without a path it does nothing. Throws Error naming the file if it
/// cannot be written.
class StepTable {
 public:
  StepTable(std::string path, const std::string& costs_of);
  void add(const sim::Simulation& simulation);
  void end();

  static const FileKind kKind;

 private:
  std::string path_;
  std::string last_cell_;
  std::ofstream file_;
};

extern const FileKind kRequestTable;
/// A row for each request with a history; empty cells: it did not happen.
std::string request_table(const sim::KeptRequests& requests, const sim::Slo& slo,
                          const std::string& costs_of);

}  // namespace quire::cli
