#pragma once

#include <filesystem>
#include <fstream>

#include "control/scheduler.h"
#include "control/step.h"

namespace quire {

/// One JSON object a line for every step: what ran, how full the pool was, what sharing saved, how long it
/// took. Field names are those of StepStats; times in nanoseconds. Used by the engine's thread alone.
class StepTrace {
 public:
  /// Throws Error if the file cannot be written. Where that fails later, it warns once.
  explicit StepTrace(const std::filesystem::path& path);

  /// `started`: the `now` that the plan was made with. `plan_time`, `commit_time`: spent in the scheduler.
  void write(Nanos started, const StepStats& stats, const PhaseTimes& times, Nanos plan_time,
             Nanos commit_time);
  void flush();

 private:
  void warn_if_failed();

  std::filesystem::path path_;
  std::ofstream out_;
  bool warned_ = false;
};

}  // namespace quire
