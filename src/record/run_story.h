#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/scheduler.h"
#include "record/run_record.h"

namespace quire {

/// A sentence about steps [from, to] of a sequence; both 0 before the first step.
struct StoryLine {
  uint64_t from = 0;
  uint64_t to = 0;
  std::string text;
};

/// What became of one sequence of a recorded run. Steps count from 1; one before the first is 0.
struct SequenceStory {
  SeqId id = 0;
  std::string name;  // as recorded: any bytes
  std::optional<SeqId> fork_of;
  uint32_t prompt_tokens = 0;
  uint32_t max_tokens = 0;
  uint64_t arrived = 0;  // the step after which it came
  Nanos arrived_at = 0;
  std::optional<uint64_t> admitted;     // the first time
  std::optional<uint64_t> first_token;  // the step that sampled it
  std::optional<uint64_t> ended;        // in this step, or between it and the next
  std::optional<FinishReason> finish;
  std::string refused;  // not empty: it never waited

  uint32_t hit_tokens = 0;  // of the prompt, when it was first admitted
  uint32_t generated = 0;
  uint32_t preemptions = 0;
  uint64_t lost_tokens = 0;      // whose K/V preemptions gave up; of these:
  uint64_t found_tokens = 0;     //   found in the prefix cache,
  uint64_t returned_tokens = 0;  //   moved back from the host,
  uint64_t again_tokens = 0;     //   computed again
  uint64_t swapped_out = 0;      // blocks
  uint64_t swapped_in = 0;

  uint64_t queued = 0;                    // steps before it was first admitted
  std::map<WaitReason, uint64_t> waited;  // steps, these and those after preemptions
  std::map<SeqId, uint64_t> behind;       // steps waited behind each, by policy order or for its prompt
  std::optional<Nanos> ttft;              // since it arrived
  std::optional<Nanos> total;
  std::vector<StoryLine> lines;  // its life, in order

  uint64_t steps_waited() const;
  /// The reason for most of the waiting; kNone if it never waited.
  WaitReason waited_most_for() const;
};

/// The numbers of a whole run.
struct RunStory {
  SchedulerConfig config;
  std::vector<SequenceStory> sequences;  // in order of arrival
  uint64_t steps = 0;
  uint64_t decisions = 0;
  uint64_t evictions = 0;
  uint64_t copies = 0;
  uint64_t restored = 0;  // blocks of the prefix cache that it began with
  uint64_t most_blocks_held = 0;
  Nanos duration = 0;      // from the first step to the last result
  bool truncated = false;  // within a record
  std::optional<uint64_t> digest;

  bool ended_well() const { return digest.has_value(); }
};

/// Of which sequences the lines are told.
using WhoseLines = std::function<bool(SeqId, std::string_view name)>;

/// Reads a recorded run and tells it. Throws Error as RunReader does.
RunStory tell_run(const std::filesystem::path& path, const WhoseLines& whose_lines = {});

/// "12.3 ms", "1.25 s", three digits or so.
std::string duration_text(Nanos nanos);

/// "waits for ..." in one word or two, for tables: kWaitNames.
std::string_view wait_name(WaitReason reason);

/// How it ended: "stop", "length", "cut off" (aborted, or ended by a stop string), "error", "refused", "runs
/// on".
std::string_view end_name(const SequenceStory& story);

}  // namespace quire
