#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "startup/simulated_machine.h"

// The flags that say which machine a plan or a simulation is for.
namespace quire::cli {

class Flag;
class Flags;

struct MachineOptions {
  std::optional<std::string> machine;
  std::optional<std::string> memory;
  std::optional<double> bandwidth;  // GB/s
  std::optional<double> flops;      // TFLOP/s
  double efficiency = 1;
};
/// Adds all of them.
void add_machine_options(const Flags& command, MachineOptions& options);

/// The bytes that this machine has free. Throws Error naming --memory if it does not say.
uint64_t free_memory();

/// Accepts the names of --machine for a flag, and shows them in the help text.
void check_machine_name(const Flag& flag);
/// Adds --efficiency.
Flag add_efficiency_option(const Flags& command, double& efficiency);

/// ChosenMachine::title of machine_of, without measuring anything.
std::string machine_title(const MachineOptions& options);
/// With its efficiency. Measures this machine if its rates are asked for. Throws Error naming a flag.
startup::ChosenMachine machine_of(const MachineOptions& options);
/// One of the names of --machine. This machine is measured once, so all calls give the same. Thread-safe.
const startup::ChosenMachine& machine_named(const std::string& name);

}  // namespace quire::cli
