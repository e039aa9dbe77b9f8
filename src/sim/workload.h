#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/rng.h"

namespace quire::sim {

/// "12.5" as 12500: a number with at most three decimals, in thousandths, so that no decision depends on a
/// double. Throws Error naming `flag`.
uint64_t parse_thousandths(std::string_view text, std::string_view flag);

/// The distribution of the lengths of prompts or outputs, in tokens.
struct Lengths {
  enum class Kind : uint8_t { kFixed, kUniform, kLogNormal };
  Kind kind = Kind::kFixed;
  uint32_t low = 1;   // kFixed: the length; else the minimum
  uint32_t high = 1;  // the maximum; kLogNormal: a draw outside [low, high] is replaced by the nearer end
  uint32_t mean = 0;  // kLogNormal: the mean before that
  uint32_t sigma_thousandths = 0;  // kLogNormal: the sigma of the logarithm

  /// "512", "uniform:LOW:HIGH", "lognormal:MEAN:SIGMA" or "lognormal:MEAN:SIGMA:MOST" (default: 1,048,576).
  /// Throws Error naming `flag`.
  static Lengths parse(std::string_view text, std::string_view flag);
  uint32_t draw(SplitMix64& random) const;
};

/// One request of a workload.
struct SimRequest {
  Nanos arrival = 0;  // from the start of the run
  uint32_t prompt_length = 0;
  uint32_t output_length = 0;
  /// The beginning of its prompt: pieces of Workload::piece_length tokens each, by number. Equal numbers mean
  /// equal tokens. The last piece is cut to the length of the prompt. The tokens after the pieces are unique
  /// to the prompt.
  std::vector<uint32_t> pieces;
  // For scheduling policies; see SeqSpec.
  Nanos ttft_deadline = 10'000'000'000;
  int32_t priority = 0;
  uint32_t tenant = 0;
};

/// Requests and their arrival times. The tokens are generated on demand, so that a trace with millions of
/// tokens needs no memory for them.
struct Workload {
  uint64_t seed = 0;
  uint32_t vocab_size = 32000;
  uint32_t piece_length = 0;
  uint32_t choices = 1;        // answers per prompt, as forks of the first
  bool lengths_known = false;  // whether the scheduler knows the length of answers; if not, it estimates
  std::vector<SimRequest> requests;  // in order of arrival

  /// The prompt of requests[index], a function of seed, vocabulary and the request alone.
  std::vector<TokenId> prompt(size_t index) const;
};

struct WorkloadConfig {
  uint64_t seed = 0;
  uint32_t num_requests = 1000;
  uint64_t rate_thousandths = 0;  // requests per second (Poisson), in thousandths; 0: none
  uint32_t burst = 0;             // a burst of additional requests ...
  Nanos burst_every = 0;          // ... after each interval of this length; 0: never
  Lengths prompt;                 // without the shared prefix
  Lengths output;
  uint32_t prefix_length = 0;  // the shared prefix of each prompt, in tokens
  uint32_t num_prefixes = 1;   // the number of prefixes; each prompt has one of them
  uint32_t zipf_thousandths =
      1000;  // alpha: the k-th prefix has weight k^-alpha; 0: all have the same weight
  uint32_t vocab_size = 32000;
};

/// The tenants, priorities and deadlines of requests, drawn from a separate random stream, so that nothing
/// else changes.
struct ServiceConfig {
  uint64_t seed = 0;
  uint32_t num_tenants = 1;     // the k-th tenant has weight 1 / k
  uint32_t num_priorities = 1;  // 0 ... all alike
  Lengths ttft_deadline_ms{.low = 10'000, .high = 10'000};
};
/// Throws Error if a value is invalid.
void assign_service(Workload& workload, const ServiceConfig& config);

/// Draws a workload. All requests arrive at time 0 if there is neither a rate nor a burst. The lengths and
/// tokens of a request depend on the seed and its number, not on rate and bursts. Throws Error if a value is
/// invalid.
Workload make_workload(const WorkloadConfig& config);

}  // namespace quire::sim
