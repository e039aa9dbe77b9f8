#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "sim/workload_arrivals.h"
#include "sim/workload_lengths.h"

namespace quire::sim {

inline constexpr uint32_t kNoRequest = UINT32_MAX;

/// One request of a workload.
struct SimRequest {
  Nanos arrival = 0;  // from the start of the run; of one that follows another: unknown until that has ended
  uint32_t prompt_length = 0;
  uint32_t output_length = 0;
  /// The request, earlier in the list, whose end it awaits; it arrives `think` later. No two await the same.
  uint32_t follows = kNoRequest;
  Nanos think = 0;
  /// It is the next turn of a conversation: its prompt begins with the prompt and the answer of the request
  /// that it follows. If that one is refused or fails, it is not sent.
  bool continues = false;
  /// The beginning of its prompt: pieces of Workload::piece_length tokens each, by number. Equal numbers mean
  /// equal tokens. The last piece is cut to the length of the prompt. The tokens after the pieces are unique
  /// to the prompt. Of a turn that continues: none.
  std::vector<uint64_t> pieces;
  // For scheduling policies; see SeqSpec.
  Nanos ttft_deadline = 10'000'000'000;
  int32_t priority = 0;
  uint32_t tenant = 0;
  bool names_deadline = false;  // a trace says its ttft_deadline, which is not just the default
  uint32_t line = 0;            // of the trace; 0: there is none
};

/// What all requests of a workload have in common.
struct WorkloadSettings {
  uint64_t seed = 0;
  uint32_t vocab_size = 32000;
  uint32_t piece_length = 0;
  uint32_t choices = 1;            // answers per prompt, as forks of the first
  bool lengths_known = false;      // whether the scheduler knows the length of answers; if not, it estimates
  std::vector<std::string> notes;  // of a trace: what its reader changed or left out, for the user
};

/// The prompt of the request with this number, a function of seed, vocabulary, number and request alone, and
/// of `history`: of a turn that continues, the prompt and answer before it, no longer than the
/// `history_length` tokens that they should have. Tokens are made when they are asked for, so that a workload
/// with millions of them needs no memory for them.
std::vector<TokenId> prompt_of(const WorkloadSettings& settings, size_t number, const SimRequest& request,
                               uint32_t history_length = 0, std::span<const TokenId> history = {});

/// A list of requests and their arrival times. Lists are for traces and tests: to draw a long workload, see
/// sim/generated_requests.h.
struct Workload : WorkloadSettings {
  // Of a trace: whether it says when requests arrive, and for any of them what the scheduling policies use.
  bool has_times = true;
  bool has_deadlines = false;
  bool has_priorities = false;
  bool has_tenants = false;
  std::vector<SimRequest> requests;  // without users, those that follow no other are in order of arrival

  /// The prompt of requests[index].
  std::vector<TokenId> prompt(size_t index, std::span<const TokenId> history = {}) const;
};

/// When the requests of a workload are sent.
struct TimesConfig : ArrivalConfig {
  /// A closed loop: the number of users, each of whom sends the next request, or begins the next
  /// conversation, some time after the last has ended; no request arrives in any other way then. 0: an open
  /// loop.
  uint32_t users = 0;
  /// How long a user waits before each request of a closed loop, and before a later turn of a conversation.
  std::optional<Lengths> think_ms;

  /// The time before the request with this number, of such a user or such a turn.
  Nanos think_time(uint32_t number) const;
  /// Throws Error if a value is invalid.
  void check() const;
};
/// Sets the times of a workload whose requests follow others only as the next turn, which is the next in the
/// list. The k-th conversation, or request, belongs to user k modulo the number of users. The seed is that of
/// the workload. Throws Error if a value is invalid.
void give_times(Workload& workload, const TimesConfig& config);

/// The tenants, priorities and deadlines of requests, drawn from a separate random stream, so that nothing
/// else changes. The turns of a conversation have the same.
struct ServiceConfig {
  uint64_t seed = 0;
  uint32_t num_tenants = 1;     // the k-th tenant has weight 1 / k
  uint32_t num_priorities = 1;  // 0 ... all alike
  Lengths ttft_deadline_ms{.low = 10'000, .high = 10'000};
};
/// Leaves what a trace says. Throws Error if a value is invalid.
void assign_service(Workload& workload, const ServiceConfig& config);

/// What is to be drawn. All requests arrive at time 0 if there are neither users nor a rate nor a burst. The
/// lengths and tokens of a request depend on the seed and its number, not on times.
struct WorkloadConfig : TimesConfig {
  uint32_t num_requests = 1000;  // turns of conversations included
  Lengths prompt;                // without the shared prefix
  Lengths output;
  uint32_t prefix_length = 0;  // the shared prefix of each prompt, in tokens
  uint32_t num_prefixes = 1;   // the number of prefixes; each prompt has one of them
  uint32_t zipf_thousandths =
      1000;       // alpha: the k-th prefix has weight k^-alpha; 0: all have the same weight
  Lengths turns;  // of a conversation
  std::optional<Lengths> turn_prompt;  // what a later turn adds to its history; without it as `prompt`
  uint32_t vocab_size = 32000;
  uint32_t choices = 1;
  bool lengths_known = false;
  std::optional<ServiceConfig> service;  // absent: the defaults of SimRequest
};

/// A drawn workload as a list (sim/generated_requests.h). Throws Error if a value is invalid.
Workload make_workload(const WorkloadConfig& config);

}  // namespace quire::sim
