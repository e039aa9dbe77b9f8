#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/scheduler.h"
#include "record/run_record.h"

namespace quire {

/// What became of one sequence of a recorded run. Steps count from 1; one before the first is 0.
struct SequenceStory {
  SeqId id = 0;
  std::optional<SeqId> fork_of;
  uint32_t prompt_tokens = 0;
  uint32_t max_tokens = 0;
  uint64_t arrived = 0;                 // the step after which it came
  std::optional<uint64_t> admitted;     // the first time
  std::optional<uint64_t> first_token;  // the step that sampled it
  std::optional<uint64_t> ended;
  std::optional<FinishReason> finish;
  std::string refused;  // not empty: it never waited
  uint32_t hit_tokens = 0;
  uint32_t generated = 0;
  uint32_t preemptions = 0;
  uint32_t swapped_blocks = 0;
  std::map<WaitReason, uint64_t> waited;  // steps
  std::vector<std::string> lines;         // its life, in order

  uint64_t steps_waited() const;
};

/// The numbers of a whole run.
struct RunStory {
  SchedulerConfig config;
  std::vector<SequenceStory> sequences;  // in order of arrival
  uint64_t steps = 0;
  uint64_t decisions = 0;
  uint64_t evictions = 0;
  uint64_t copies = 0;
  uint64_t most_blocks_held = 0;
  bool truncated = false;
  std::optional<uint64_t> digest;
};

/// Reads a recorded run and tells it. Lines are told only of `only`, if given. Throws Error as RunReader
/// does.
RunStory tell_run(const std::filesystem::path& path, std::optional<SeqId> only = std::nullopt);

}  // namespace quire
