#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "backend/sim/cost_model.h"
#include "base/file_kind.h"

namespace quire::backend::sim {

/// How far the fitted times lie from those of steps that the fit did not see, in parts of the time.
struct FitError {
  std::string kind;    // step_kind
  uint64_t steps = 0;  // 0: none of this kind were seen, and the others are 0
  double median = 0;
  double p90 = 0;
  double bias = 0;  // the sum of all fitted times over that of the measured ones, less 1
};

/// A cost model with what it was fitted to, as a file keeps it.
struct CostFile {
  FittedCost cost;
  std::string device;     // what Backend::describe said: the weights, their format, the kernels, the threads
  std::string build;      // of quire, that measured
  uint64_t steps = 0;     // that it was fitted to
  uint64_t left_out = 0;  // that took too long: something else ran
  std::vector<FitError> errors;
};

inline constexpr FileKind kCostFile{"cost model", "{\"quire_cost\":"};

/// In CostFile::device, before a warning.
inline constexpr std::string_view kKeptWarning = "; warning: ";

/// How a device computes a model; empty: it is not known.
struct DeviceSetup {
  std::string parameters;  // how many the model has, as "6,738,415,616"
  std::string weights;     // their format, as "bf16"
  std::string kv;          // the type of K/V, as "int8"
  std::string kernels;     // their level, as "avx2"
  std::string threads;     // how many compute
};

/// The setup in what Backend::describe says; a simulated device has none, and a GPU no kernels and threads.
DeviceSetup setup_in(std::string_view device);

/// On what a run computes: on nothing, as a simulation or a plan; on a simulated device; on a machine.
enum class RunsOn : uint8_t { kNothing, kSimulated, kMachine };

/// What a run that uses a cost model knows of itself; empty: it does not know.
struct CostRun {
  std::string model;    // startup::model_name
  std::string machine;  // machine_name()
  DeviceSetup setup;
  RunsOn runs_on = RunsOn::kNothing;
};

/// Throws Error, naming both, if the file is of another model, machine or setup than the run's (a file that
/// does not say a part of the setup is of any), or if it was fitted to a simulated device and the run
/// computes on a machine: its times are then not those of this run. With `force` that is a warning. Returns
/// what is to be repeated in all that the run writes; "" if they fit: that warning; that the times are a
/// simulated device's, where the run computes on nothing; and the warning with which the steps were logged,
/// which the file keeps behind kKeptWarning. `path`: of the file, for the message.
std::string check_cost_file_for(const CostRun& run, const CostFile& file, const std::filesystem::path& path,
                                bool force);

/// Throws Error "PATH: key 'NAME': WHAT" if it is damaged, or of another version.
CostFile read_cost_file(const std::filesystem::path& path);
/// Throws Error naming `path`, also if a file of another kind is there.
void write_cost_file(const std::filesystem::path& path, const CostFile& file);

}  // namespace quire::backend::sim
