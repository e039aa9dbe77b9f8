#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/slo.h"
#include "sim/sweep.h"

// Many simulations instead of one: a table of what happens with other flags, and the load that is carried.
namespace quire::cli {

class Flags;

struct WhatIf {
  std::vector<std::string> arguments;  // of each run, "--flag=value"
  std::vector<sim::SweepAxis> axes;    // the flags that change; none of them is in `arguments`
  sim::Slo slo;
  bool find_capacity = false;
  std::vector<std::pair<std::string, std::string>> settings;  // for the page: the flags and their values
  uint32_t seeds = 5;                                         // of find_capacity: one search for each
  std::string csv_file;
  std::string json_file;
  std::string html_file;
};

/// Runs all combinations, as many at once as there are CPUs, and prints a table; with `find_capacity` the
/// largest rate, number of users or --trace-speed of each that meets the objectives. Ctrl-C prints what had
/// ended by then. Returns the exit status. Throws Error naming a flag, before anything runs if it can.
int run_what_if(const WhatIf& asked);

}  // namespace quire::cli
