#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/rng.h"

namespace quire::sim {

/// "12.5" as 12500: a number of at most three decimals, in thousandths, so that no double decides anything.
/// Throws Error naming `flag`.
uint64_t parse_thousandths(std::string_view text, std::string_view flag);

/// How long prompts or outputs are, in tokens.
struct Lengths {
  enum class Kind : uint8_t { kFixed, kUniform, kLogNormal };
  Kind kind = Kind::kFixed;
  uint32_t low = 1;   // kFixed: the length; else the least
  uint32_t high = 1;  // the most; kLogNormal: what is drawn outside [low, high] becomes the nearer end
  uint32_t mean = 0;  // kLogNormal: before that
  uint32_t sigma_thousandths = 0;  // kLogNormal: of the logarithm

  /// "512", "uniform:LOW:HIGH", "lognormal:MEAN:SIGMA" or "lognormal:MEAN:SIGMA:MOST" (1,048,576 if left
  /// out). Throws Error naming `flag`.
  static Lengths parse(std::string_view text, std::string_view flag);
  uint32_t draw(SplitMix64& random) const;
};

/// One sequence that comes in.
struct SimRequest {
  Nanos arrival = 0;  // from the start
  uint32_t prompt_length = 0;
  uint32_t output_length = 0;
  /// What its prompt begins with: pieces of Workload::piece_length tokens each, by number. Equal numbers are
  /// equal tokens. Of the last, as much as the prompt has room for; what follows is its own.
  std::vector<uint32_t> pieces;
  // What scheduling policies go by, see SeqSpec.
  Nanos ttft_deadline = 10'000'000'000;
  int32_t priority = 0;
  uint32_t tenant = 0;
};

/// What comes in and when; the tokens are made on demand, so that a trace of millions of them needs no
/// memory.
struct Workload {
  uint64_t seed = 0;
  uint32_t vocab_size = 32000;
  uint32_t piece_length = 0;
  uint32_t choices = 1;              // answers to each prompt, forks of the first
  bool lengths_known = false;        // the scheduler is told how long an answer will be; else it estimates
  std::vector<SimRequest> requests;  // in order of arrival

  /// The prompt of requests[index]: a function of seed, vocabulary and the request alone.
  std::vector<TokenId> prompt(size_t index) const;
};

struct WorkloadConfig {
  uint64_t seed = 0;
  uint32_t num_requests = 1000;
  uint64_t rate_thousandths = 0;  // requests a second (Poisson), in thousandths; 0: none
  uint32_t burst = 0;             // so many more at once ...
  Nanos burst_every = 0;          // ... every so often, first after that time; 0: never
  Lengths prompt;                 // without the shared prefix
  Lengths output;
  uint32_t prefix_length = 0;        // shared prefix in front of each prompt, in tokens
  uint32_t num_prefixes = 1;         // each prompt has one of these
  uint32_t zipf_thousandths = 1000;  // the k-th in proportion to k^-alpha; 0: all alike
  uint32_t vocab_size = 32000;
};

/// Whose requests they are and what they are promised; drawn with numbers of its own, so that nothing else
/// changes.
struct ServiceConfig {
  uint64_t seed = 0;
  uint32_t num_tenants = 1;     // the k-th has requests in proportion to 1 / k
  uint32_t num_priorities = 1;  // 0 ... all alike
  Lengths ttft_deadline_ms{.low = 10'000, .high = 10'000};
};
/// Throws Error if a value makes no sense.
void assign_service(Workload& workload, const ServiceConfig& config);

/// Draws a workload. All at time 0 if there is neither a rate nor a burst. The lengths and tokens of a
/// request depend on the seed and its number, not on rate and bursts. Throws Error if a value makes no sense.
Workload make_workload(const WorkloadConfig& config);

}  // namespace quire::sim
