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
  std::string kind;    // sim::kind_of
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

/// What a run that uses a cost model knows of itself; empty: it does not know.
struct CostRun {
  std::string model;    // startup::model_name
  std::string machine;  // machine_name()
  std::string weights;  // their format: weights_in
};

/// The format of the weights in what Backend::describe says, as "bf16"; "" if it names none, as that of a
/// simulated device.
std::string weights_in(std::string_view device);

/// Throws Error, naming both, if the file is of another model, machine or format of the weights than the
/// run's (a file that names no format is of any): its times are then not those of this run. With `force` it
/// returns that as a warning, to be repeated in all that the run writes; "" if they fit. `path`: of the file,
/// for the message.
std::string check_cost_file_for(const CostRun& run, const CostFile& file, const std::filesystem::path& path,
                                bool force);

/// Throws Error "PATH: key 'NAME': WHAT" if it is damaged, or of another version.
CostFile read_cost_file(const std::filesystem::path& path);
/// Throws Error naming `path`, also if a file of another kind is there.
void write_cost_file(const std::filesystem::path& path, const CostFile& file);

}  // namespace quire::backend::sim
