#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "engine/step_budget.h"
#include "engine/step_costs.h"

namespace quire::engine {

/// A sequence as a forecast sees it.
struct ForecastSeq {
  uint32_t tokens = 1;       // of its prompt, and those that it has generated
  uint32_t computed = 0;     // of these, with K/V; while it waits: those that it will find cached; < tokens
  uint32_t to_generate = 1;  // from now on, as expected; at least 1
  uint64_t blocks = 0;       // running: those that its end makes available; waiting: those that it needs
  bool started = false;      // it has had its first token
  bool counted = false;  // waiting: its prompt counts for its tenant already, since it was admitted before
  bool wanted = false;   // the forecast goes on until it has ended
  uint32_t tenant = 0;   // whose tokens it counts for, in ForecastState::served
};

/// What a scheduler has before it, for forecast().
struct ForecastState {
  Nanos now = 0;  // when the next step begins
  StepTokens budget;
  uint32_t context_cost = 0;  // SchedulerConfig::context_cost
  uint32_t free_slots = 0;
  uint64_t available = 0;  // blocks
  uint64_t watermark = 0;  // blocks that an admission leaves available
  uint32_t block_size = 16;
  uint32_t groups = 1;               // K/V groups; the tables of all of them are taken to grow
  bool swaps = false;                // what is preempted keeps its K/V, on the host
  bool all_first = false;            // the forecast goes on until all have had their first token, too
  std::vector<ForecastSeq> running;  // in order of admission
  std::vector<ForecastSeq> waiting;  // in the order in which they are to be admitted, of each tenant
  /// What each tenant was served, as FairShares counts it: the least served comes first, with equal ones the
  /// first in `waiting`. Empty: there are no tenants.
  std::vector<int64_t> served;
};

/// When something is expected to happen to a sequence; -1: it has happened before, or not within the
/// forecast.
struct ForecastTimes {
  Nanos first_token = -1;
  Nanos end = -1;
};

struct Forecast {
  std::vector<ForecastTimes> running;  // as in the state
  std::vector<ForecastTimes> waiting;
  bool cut = false;  // kMostForecastEvents were too few; what was left is extrapolated
};

inline constexpr uint32_t kMostForecastEvents = 8192;

/// Follows the scheduler's rules (control/scheduler.h) for these sequences alone, with steps that last as
/// long as `costs` says: each step decodes a token of every sequence that has only its last token left,
/// continues the prompt that was cut short, and admits what waits, in order, while there are tokens, a slot
/// and blocks; to find the next one of many tenants takes the logarithm of their number. A stretch of steps
/// without a prompt is one event, so the work grows with the chunks of prompts and the ends of sequences, not
/// with tokens; kMostForecastEvents bounds it. Of prompts that begin alike and of which none is computed yet,
/// each is taken to be computed as a whole. Pure.
Forecast forecast(const ForecastState& state, const StepCosts& costs);

}  // namespace quire::engine
