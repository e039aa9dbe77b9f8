#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "record/follow_run.h"

namespace quire::record {

/// How much of a run one page shows; it ends when one of these limits is reached.
struct TimelineLimits {
  uint64_t steps = 20'000;
  uint64_t bytes = uint64_t{20} << 20;  // of all streams
  uint64_t sequences = 50'000;          // that are present in these steps
};

/// The numbers of a step while it computes: after its plan, before its results.
struct StepColumns {
  std::vector<Nanos> began;
  std::vector<Nanos> took;  // 0: unknown
  std::vector<uint32_t> running;
  std::vector<uint32_t> waiting;
  std::vector<uint32_t> prefill_tokens;
  std::vector<uint32_t> decode_tokens;
  std::vector<uint32_t> held;    // blocks
  std::vector<uint32_t> shared;  // of these, blocks held by two or more tables
  std::vector<uint32_t> cached;
  std::vector<uint32_t> host;  // blocks of the host pool
};

/// A part of a recorded run, step by step, in a compact encoding: streams of LEB128 numbers, in which "seq"
/// is an index into `sequences`, + 1 where there may be none, and signed numbers (~) use zigzag.
///
/// - segments[i]: the states of sequences[i]: first step, then for each run of equal steps: phase + 8 x
///   WaitReason, the seq that it waits behind + 1, why that comes first (kOrder: index in `causes` + 1, else
///   0), number of steps.
/// - events: for each step: count, then for each event: DecisionKind, seq + 1, a, b, and c: for a preemption
///   why (index in `causes` + 1), else 0. Block decisions (see below) and one-token decodes (see segments)
///   are not included. The events of a step are in order: its plan, its results, and those between its
///   results and the next step.
/// - blocks: the changes of the pool, for each step from the previous step (the first: from an empty pool)
///   and, after the last step, to its end: count, then for each: BlockChange, ~block - block of the previous
///   one in this step, and for kTake, kDrop, kDropToCache: ~seq - seq of the previous one with a seq.
/// - host: the same for the host pool.
struct RunTimeline {
  enum BlockChange : uint8_t {
    kTake = 0,         // one more table holds it
    kDrop = 1,         // one table less holds it; after the last it is free
    kDropToCache = 2,  // the last table released it; its contents stay in the prefix index
    kEvict = 3,        // cached, now free
    kIsCached = 4,     // at the first step: cached since before
  };

  uint64_t first = 1;             // step
  uint64_t last = 0;              // step, inclusive
  bool limited = false;           // ended by the limits
  uint32_t blocks_used = 0;       // 1 + the highest block ever named
  uint32_t host_blocks_used = 0;  // the same for the host pool
  std::vector<size_t> sequences;  // the sequences present in these steps or arriving just before: their
                                  // numbers in the whole run, ascending
  std::vector<std::string> segments;
  StepColumns columns;
  std::vector<std::string> causes;  // sentences, in the words of the stories
  std::string events;
  std::string blocks;
  std::string host;
};

/// Reads steps [first, last] of a run up to the limits, and nothing of the log after them, unless `also` is
/// given, which follows the whole run meanwhile, in another thread. The sequence with number `always` is
/// included whether or not it is present in these steps. Throws Error as RunReader does, and if the run has
/// no step in that range.
RunTimeline read_timeline(RunReader& reader, uint64_t first, uint64_t last, const TimelineLimits& limits = {},
                          std::optional<size_t> always = {}, RunListener* also = nullptr);

}  // namespace quire::record
