#pragma once

#include <filesystem>
#include <string>

#include "base/private_file.h"
#include "control/scheduler.h"
#include "control/step.h"

namespace quire::engine {

/// One line with a JSON object per step: what ran, how full the pool was, what sharing saved, how long it
/// took. Field names are those of StepStats; times are in nanoseconds. Used only by the engine thread.
class StepTrace {
 public:
  /// Throws Error as PrivateFile does: only a step trace is overwritten, and only its user may read it. If
  /// writing fails later, for lack of disk space or memory, it warns once and the trace ends with the last
  /// whole line.
  explicit StepTrace(const std::filesystem::path& path);
  ~StepTrace() { flush(); }
  /// Throws if the constructor would. Changes nothing.
  static void check_place(const std::filesystem::path& path);

  /// `started`: when the plan was made. `plan_time`, `commit_time`: time spent in the scheduler.
  void write(Nanos started, const control::StepStats& stats, const control::PhaseTimes& times,
             Nanos plan_time, Nanos commit_time) noexcept;
  void flush() noexcept;

 private:
  void append(Nanos started, const control::StepStats& stats, const control::PhaseTimes& times,
              Nanos plan_time, Nanos commit_time);
  void cut_off() noexcept;

  PrivateFile out_;
  const std::string warning_;  // allocated in advance, while there is memory
  bool failed_ = false;
  std::string buffer_;
};

}  // namespace quire::engine
