#pragma once

#include <string>

namespace quire::cli {

class Flags;

struct CompareRuns {
  std::string a;  // what simulate --json or bench serve --json wrote
  std::string b;
  std::string json_file;
  std::string html_file;
};

/// Prints the figures of two runs beside each other, the settings that differ, and the differences of the
/// requests that both have; runs nothing. Returns the exit status. Throws Error naming the file that is
/// wrong.
int compare_runs(const CompareRuns& asked);

/// Throws Error naming a flag of `command` that has no effect with --compare.
void settle_compare(const Flags& command);

}  // namespace quire::cli
