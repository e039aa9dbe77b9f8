#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/file_kind.h"
#include "sim/simulation.h"
#include "sim/simulation_listener.h"

namespace quire::sim {

/// Writes a simulation as a file of trace events ("Trace Event Format", the JSON that chrome://tracing and
/// ui.perfetto.dev read), while it runs: each step as a slice of the device, each request as an asynchronous
/// slice with its phases (waiting, prefill, decode) within it, preemptions as instants, and the blocks and
/// sequences as counters. Its metadata says what the times of the steps are from (cost_text), and how many
/// are extrapolated; these steps say so themselves. A request's slices are written when it has ended, so the
/// events are not in order of time; the memory it needs does not depend on the run. A run that does not end
/// must be broken off before end().
class EventTrace final : public SimulationListener {
 public:
  /// `simulation` must outlive it and be told to listen(). Throws Error naming the path if it cannot be
  /// written.
  EventTrace(const std::filesystem::path& path, const Simulation& simulation);

  void step_done(Nanos began, Nanos ended) override;
  void preempted(size_t request, uint32_t choice, Nanos now) override;
  void admitted_again(size_t request, uint32_t choice, Nanos now) override;
  void finished(const SimulatedRequest& of) override;
  void refused(const SimulatedRequest& of, Nanos now) override;
  void unfinished(const SimulatedRequest& of, Nanos now) override;

  /// Writes the end of the file. Throws Error naming the path if not all
  /// could be written.
  void end();

  static const FileKind kKind;

 private:
  void put(std::string_view event);
  void put_slice(size_t request, std::string_view name, Nanos from, Nanos to, std::string_view arguments);
  void put_instant(size_t request, std::string_view name, uint32_t choice, Nanos now);
  void put_request(const SimulatedRequest& asked, Nanos end);

  const std::filesystem::path path_;
  const Simulation& simulation_;
  std::ofstream file_;
};

}  // namespace quire::sim
