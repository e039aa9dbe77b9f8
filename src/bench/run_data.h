#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "bench/load_report.h"
#include "bench/page_frame.h"
#include "sim/kept_requests.h"
#include "sim/report.h"
#include "sim/simulation.h"
#include "sim/slo.h"
#include "sim/timeline.h"

// One run, measured by a client or simulated, in the form that pages and comparisons use.
namespace quire::bench {

/// One request. Times are in nanoseconds from the start of the run; -1: it did not happen.
struct RunRequest {
  uint64_t number = 0;  // in the workload, from 1: equal numbers of two runs are the same request
  Nanos arrival = -1;
  Nanos first = -1;
  Nanos end = -1;
  std::optional<Nanos> tpot;
  uint32_t prompt_tokens = 0;
  std::optional<uint32_t> cached_tokens;  // of the prompt
  bool finished = false;
  bool refused = false;  // by the scheduler, at once

  // Of one that has finished.
  Nanos ttft() const { return first - arrival; }
  Nanos e2e() const { return end - arrival; }
  bool meets(const sim::Slo& slo) const { return finished && slo.met_by(ttft(), tpot, e2e()); }
};

/// What became of the requests of one tenant, or of one priority.
struct RunGroup {
  const char* kind = "tenant";  // or "priority"
  sim::GroupOutcome outcome;
};

struct RunData {
  std::string title;    // "A server under load"
  std::string name;     // what it is called beside another run: "this run", or its file
  std::string refused;  // what requests are that did not finish: "failed", "refused"
  PageFacts settings;

  uint64_t requests = 0;
  uint64_t finished = 0;
  uint64_t not_finished = 0;  // see `refused`
  uint64_t prompt_tokens = 0;
  uint64_t output_tokens = 0;
  bool tokens_said = true;  // false: pieces of text were counted instead of output tokens
  double seconds = 1;
  sim::Slo slo;
  std::optional<uint64_t> good;  // that met it
  // Without them if no request has finished, and without those between tokens if all answers have one.
  std::optional<sim::Percentiles> ttft;
  std::optional<sim::Percentiles> tpot;
  std::optional<sim::Percentiles> e2e;
  std::optional<sim::Percentiles> itl;    // between two tokens; of a server
  std::optional<sim::Percentiles> queue;  // from arrival to admission; of a simulation
  std::optional<uint64_t> queried_tokens;
  std::optional<uint64_t> hit_tokens;
  std::optional<uint64_t> hit_bound;  // hit tokens of evictions that know the future
  std::optional<uint64_t> preemptions;
  std::optional<uint64_t> evictions;
  std::vector<std::string> complaints;

  std::vector<RunGroup> groups;
  std::vector<RunRequest> records;
  std::vector<Nanos> gaps;                             // from one token to the next, of all requests
  std::vector<std::pair<double, double>> output_rate;  // second, tokens/s
  /// Without buckets: not known, and `no_timeline` says why.
  sim::Timeline timeline;
  bool has_cached = false;  // whether the timeline has the cached share of the pool
  std::string no_timeline;

  /// Of a run that was broken off, fewer than all.
  uint64_t ended() const { return finished + not_finished; }
  double per_second(uint64_t count) const { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }
};

/// A load that a client measured. `timeline`: see ServerTimeline. The caller adds the title's settings.
RunData run_of(const LoadReport& report, std::span<const LoadSample> samples, const sim::Timeline& timeline);
/// A simulation that has ended or was broken off.
RunData run_of(const sim::ReportBuilder& builder, const sim::KeptRequests& requests,
               const sim::Timeline& timeline);

/// A figure of a run that others have too.
struct RunFigure {
  std::string name;  // "TTFT p99"
  std::string unit;  // "ms"; may be empty
  double value = 0;
};
/// All that the run has, in an order that is the same for all runs.
std::vector<RunFigure> figures_of(const RunData& run);

}  // namespace quire::bench
