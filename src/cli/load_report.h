#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "base/ids.h"
#include "sim/report.h"

namespace quire::cli {

/// One request of a load as its client saw it. Times count from the start of the load.
struct LoadSample {
  Nanos arrival = 0;  // when it was due; of clients that take turns, when it was sent
  Nanos first = 0;    // the first piece of text
  Nanos end = 0;      // or when it failed
  uint32_t prompt_tokens = 0;
  uint32_t tokens = 0;
  uint32_t wanted_tokens = 0;
  bool tokens_said = true;  // by the server; else they are pieces of text
  std::vector<Nanos> gaps;  // from one token to the next; see StreamedAnswer
  std::string error;        // empty: it came to its end

  bool ok() const { return error.empty(); }
  Nanos ttft() const { return first - arrival; }
  Nanos e2e() const { return end - arrival; }
  /// Time per token after the first; of those with at least two.
  std::optional<Nanos> tpot() const;
};

/// What a request must keep to in order to be good; what is absent is not asked for.
struct LoadObjective {
  std::optional<Nanos> ttft;
  std::optional<Nanos> tpot;
  bool any() const { return ttft || tpot; }
  bool met_by(const LoadSample& sample) const;
};

/// Errors that differ in numbers alone.
struct LoadErrors {
  uint64_t count = 0;
  std::string example;
};

/// What a load came to. Tokens and times are those of requests that came to their end.
struct LoadReport {
  uint64_t requests = 0;  // asked for
  uint64_t finished = 0;  // came to their end
  uint64_t failed = 0;
  uint64_t unfinished = 0;  // still open or not sent when the load was interrupted
  uint64_t good = 0;
  uint64_t short_answers = 0;  // fewer tokens than asked for
  bool tokens_said = true;     // all of them by the server
  uint64_t prompt_tokens = 0;
  uint64_t output_tokens = 0;
  Nanos elapsed = 1;  // from the start to the last end
  sim::Percentiles ttft;
  sim::Percentiles tpot;
  sim::Percentiles itl;  // between two tokens of an answer
  sim::Percentiles e2e;
  LoadObjective objective;
  std::vector<LoadErrors> errors;  // the most frequent first

  double seconds() const { return static_cast<double>(elapsed) / 1e9; }
  double per_second(uint64_t count) const { return static_cast<double>(count) / seconds(); }
};
LoadReport report_load(std::span<const LoadSample> samples, uint64_t requests, Nanos elapsed,
                       const LoadObjective& objective);

boost::json::object to_json(const LoadReport& report);

}  // namespace quire::cli
