#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "record/run_state.h"

namespace quire::record {

/// So much of a run goes on one page; it ends where one of these is reached.
struct TimelineLimits {
  uint64_t steps = 20'000;
  uint64_t bytes = uint64_t{24} << 20;  // of all streams
  uint64_t sequences = 50'000;          // that live in these steps
};

/// What a step shows in numbers, as it computes: its plan is made, its results are not in yet.
struct StepColumns {
  std::vector<Nanos> began;
  std::vector<Nanos> took;  // 0: not known
  std::vector<uint32_t> running;
  std::vector<uint32_t> waiting;
  std::vector<uint32_t> prefill_tokens;
  std::vector<uint32_t> decode_tokens;
  std::vector<uint32_t> held;    // blocks
  std::vector<uint32_t> shared;  // of these, by two or more
  std::vector<uint32_t> cached;
  std::vector<uint32_t> host;  // blocks of the host pool
};

/// A part of a recorded run step by step, encoded to be small: streams of LEB128 numbers, in which "seq" is
/// an index into `sequences`, + 1 where there may be none, and signed ones (~) are zigzag.
///
/// - segments[i]: what sequences[i] did in steps: first step, then for each run of equal steps: phase + 8 x
///   WaitReason, whom it waits behind + 1, number of steps.
/// - events: for each step: count, then for each: DecisionKind, seq + 1, a, b, and c: of a preemption for
/// whom
///   it is + 1, else 0. Neither blocks (see below) nor one-token decodes (see segments) are among them. Those
///   of a step come in order: its plan, its results, and what came between them and the next step.
/// - blocks: how the pool changes, for each step from the step before (the first: from an empty pool) and,
///   after the last, to its end: count, then for each: BlockChange, ~block - block of the one before in this
///   step, and for kTake, kDrop, kDropToCache: ~seq - seq of the one before that has one.
/// - host: the same of the host pool.
struct RunTimeline {
  enum BlockChange : uint8_t {
    kTake = 0,         // one more holder
    kDrop = 1,         // one holder less; the last leaves it free
    kDropToCache = 2,  // the last holder; its contents stay in the prefix index
    kEvict = 3,        // cached, now free
    kIsCached = 4,     // at the first step: cached since before
  };

  uint64_t first = 1;             // step
  uint64_t last = 0;              // step, inclusive
  uint64_t run_steps = 0;         // of the whole run
  bool limited = false;           // ended by the limits
  uint32_t blocks_used = 0;       // 1 + the highest block ever named
  uint32_t host_blocks_used = 0;  // the same of the host pool
  std::vector<size_t> sequences;  // those that live in these steps or come just before: their numbers in the
                                  // whole run, ascending
  std::vector<std::string> segments;
  StepColumns columns;
  std::string events;
  std::string blocks;
  std::string host;
};

/// Reads steps [first, last] of a run, as far as the limits go; nothing of the log behind them. The sequence
/// of number `always` is among its sequences wherever it lives. Throws Error as RunReader does, and if the
/// run has no step in that range.
RunTimeline read_timeline(const std::filesystem::path& path, uint64_t first, uint64_t last,
                          const TimelineLimits& limits = {}, std::optional<size_t> always = {});

}  // namespace quire::record
