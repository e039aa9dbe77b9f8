#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "base/ids.h"
#include "sim/report.h"
#include "sim/slo.h"

namespace quire::bench {

/// One request of a load as measured by its client. Times count from the start of the load.
struct LoadSample {
  Nanos arrival = 0;    // when it was due; with --concurrency, when it was sent
  Nanos first = 0;      // the first piece of text
  Nanos end = 0;        // the end of the answer, or when it failed
  uint64_t number = 0;  // of the request in the workload, from 1
  uint32_t prompt_tokens = 0;
  uint32_t tokens = 0;
  uint32_t wanted_tokens = 0;
  std::optional<uint32_t> cached_tokens;  // of the prompt, if the server says
  bool tokens_said = true;  // whether the server reported the tokens; otherwise pieces of text are counted
  std::vector<Nanos> gaps;  // from one token to the next; see StreamedAnswer
  std::string error;        // empty: it finished

  bool ok() const { return error.empty(); }
  Nanos ttft() const { return first - arrival; }
  Nanos e2e() const { return end - arrival; }
  /// Time per token after the first; for requests with at least two.
  std::optional<Nanos> tpot() const;
  /// Whether it finished and met the objectives.
  bool meets(const sim::Slo& slo) const { return ok() && slo.met_by(ttft(), tpot(), e2e()); }
};

/// Errors that differ only in numbers.
struct LoadErrors {
  uint64_t count = 0;
  std::string example;
};

/// The result of a load. Tokens and times are those of finished requests.
struct LoadReport {
  uint64_t requests = 0;  // requested
  uint64_t finished = 0;  // the answer was complete
  uint64_t failed = 0;
  uint64_t unfinished = 0;     // still open or not sent when the load was interrupted
  uint64_t good = 0;           // that met the objectives; without any, all that finished
  uint64_t short_answers = 0;  // with fewer tokens than requested
  bool tokens_said = true;     // whether the server reported all token counts
  uint64_t prompt_tokens = 0;
  uint64_t output_tokens = 0;
  Nanos elapsed = 1;  // from the start to the last end
  sim::Percentiles ttft;
  sim::Percentiles tpot;
  sim::Percentiles itl;  // between two tokens of an answer
  sim::Percentiles e2e;
  sim::Slo slo;
  std::vector<LoadErrors> errors;  // the most frequent first

  double seconds() const { return static_cast<double>(elapsed) / 1e9; }
  double per_second(uint64_t count) const { return static_cast<double>(count) / seconds(); }
};
LoadReport report_load(std::span<const LoadSample> samples, uint64_t requests, Nanos elapsed,
                       const sim::Slo& slo);

/// What went wrong, a sentence each.
std::vector<std::string> complaints_of(const LoadReport& report);

boost::json::object to_json(const LoadReport& report);
/// Adds a record of each request.
void add_requests(boost::json::object& root, std::span<const LoadSample> samples);

}  // namespace quire::bench
