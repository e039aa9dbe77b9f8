#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "control/scheduler.h"
#include "engine/answer_lengths.h"
#include "engine/fair_shares.h"
#include "engine/forecast.h"
#include "engine/step_costs.h"

namespace quire::engine {

/// A request that has just arrived, before it is queued.
struct Newcomer {
  const control::SeqSpec& spec;  // of its first sequence; the others are forks of it
  uint32_t sequences = 1;
  bool runs_on = false;                // nothing but its max_tokens ends an answer
  std::optional<Nanos> ttft_deadline;  // that it names, from its arrival
  bool accepted = false;               // it continues a request that was admitted, and is not judged
};

/// Why a request is not to be admitted.
enum class Unkept : uint8_t {
  kNever,    // its deadline cannot be kept even if it was alone
  kOwn,      // its deadline cannot be kept now
  kAnother,  // it would break the promise to another
};

/// What a request has to expect, on the engine's clock.
struct Outlook {
  Nanos first_token = 0;
  Nanos end = 0;
  std::optional<Unkept> unkept;
  std::string reason;        // with `unkept`, for its client
  uint32_t retry_after = 0;  // with `unkept`, but not kNever: seconds after which it might be kept, 1 to 600
};

/// Foretells what becomes of an arriving request, by the state of a scheduler. A sequence is taken to
/// generate as many tokens as its request says (SeqSpec::expected_tokens, or max_tokens where nothing else
/// can end it), or else as AnswerLengths says. What waits is taken in the order of the scheduling policy;
/// what `fair` counts of each tenant, FairShares finds out. Requests that are still to come are not known, so
/// under load an answer's end is foretold too early. Not thread-safe.
class QueueForecast {
 public:
  explicit QueueForecast(const StepCosts& costs) : costs_(costs) {}  // which must outlive it

  /// `cache`: the scheduler's. `begins`: when the next step can begin. `budget`: of later steps.
  /// `promises`: whether deadlines are promised; then the outlook says whether one would not be kept.
  Outlook foresee(const control::Scheduler& scheduler, const control::PrefixCache& cache,
                  const Newcomer& newcomer, Nanos begins, StepTokens budget, bool promises);
  /// A sequence has ended, or was not added to the scheduler after all.
  void forget(SeqId seq) {
    told_.erase(seq);
    shares_.forget(seq);
  }
  /// An answer has ended by itself, or at its max_tokens (`cut`).
  void answer_ended(uint32_t tokens, bool cut) { lengths_.add(tokens, cut); }

 private:
  /// What was found out of a sequence when it arrived.
  struct Told {
    uint32_t cached = 0;  // tokens that it will find cached
    uint64_t idle = 0;    // of their blocks, those that no running sequence holds
    bool runs_on = false;
    Nanos due = -1;  // when its first token was promised to come; -1: it was not promised
  };
  struct Queue {
    ForecastState state;
    std::map<uint64_t, uint32_t> tenants;  // their numbers in the state, if the policy counts for each
    std::vector<int64_t> ranks;            // of what waits
    std::vector<Nanos> running_due;        // Told::due, until its first token
    std::vector<Nanos> waiting_due;
  };

  Queue gather(const control::Scheduler& scheduler, Nanos begins, StepTokens budget);
  void gather_running(const control::Scheduler& scheduler, Queue& queue);
  void gather_waiting(const control::Scheduler& scheduler, Queue& queue) const;
  Told told_of(const control::Sequence& seq) const;
  uint32_t tenant_in(Queue& queue, uint64_t tenant) const;
  ForecastSeq waits(const control::SchedulerConfig& config, const control::Sequence& seq,
                    const Told& told) const;
  uint32_t to_generate(const control::Sequence& seq, const Told& told) const;
  int64_t rank(const control::SchedulerConfig& config, const control::Sequence& seq, const Told& told) const;
  void judge(const Queue& before, const ForecastState& state, size_t place, const Newcomer& newcomer,
             const Forecast& with, Outlook& outlook) const;
  void judge_own(const ForecastState& state, size_t place, const Newcomer& newcomer, Outlook& outlook) const;
  void judge_others(const Queue& before, size_t place, size_t sequences, const Forecast& with,
                    Outlook& outlook) const;

  const StepCosts& costs_;
  AnswerLengths lengths_;
  FairShares shares_;                                  // if the policy is fair
  std::unordered_map<SeqId, Told> told_;               // of sequences that run or wait
  std::unique_ptr<control::SchedulingPolicy> policy_;  // for ranks that depend on the sequence alone
};

}  // namespace quire::engine
