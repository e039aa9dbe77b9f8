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
#include "record/step_ranges.h"
#include "record/wait_story.h"

namespace quire::record {

/// A sentence about steps [from, to] of a sequence; both 0 before the first step.
struct StoryLine {
  uint64_t from = 0;
  uint64_t to = 0;
  std::string text;
};

/// The story of one sequence of a recorded run. Steps count from 1; 0 is before the first step.
struct SequenceStory {
  SeqId id = 0;
  std::string name;  // as recorded: any bytes
  std::optional<SeqId> fork_of;
  uint64_t tenant = 0;
  int32_t priority = 0;
  Nanos ttft_deadline = 0;  // from its arrival
  uint32_t prompt_tokens = 0;
  uint32_t max_tokens = 0;
  uint64_t arrived = 0;  // the step after which it arrived
  Nanos arrived_at = 0;
  std::optional<uint64_t> admitted;     // the first time
  std::optional<uint64_t> first_token;  // the step that sampled it
  std::optional<uint64_t> ended;        // in this step, or between this step and the next
  std::optional<control::FinishReason> finish;
  bool stop_string = false;  // with kStop: by a stop string, not by a token
  std::string refused;       // not empty: it never waited

  uint32_t hit_tokens = 0;  // of the prompt, at the first admission; those of a fork may be shared instead
  uint32_t generated = 0;
  uint32_t preemptions = 0;
  uint64_t lost_tokens = 0;      // tokens whose K/V preemptions gave up; of these:
  uint64_t found_tokens = 0;     //   found in the prefix cache,
  uint64_t returned_tokens = 0;  //   moved back from the host,
  uint64_t again_tokens = 0;     // recomputed
  uint64_t swapped_out = 0;      // blocks
  uint64_t swapped_in = 0;
  uint64_t needed_evicted = 0;  // blocks that it would have found, had they not been evicted

  uint64_t queued = 0;        // steps before its first admission
  Nanos queued_time = 0;      // the time of these steps
  Nanos waited_time = 0;      // the time of all its waiting
  StepsByReason waited;       // steps, before its first admission and after preemptions
  StepRanges in_order;        // with kOrder: behind the first in line
  uint64_t overtaken = 0;     // how many later arrivals were admitted before it
  std::optional<Nanos> ttft;  // from its arrival
  std::optional<Nanos> total;
  std::vector<StoryLine> lines;  // its life, in order

  uint64_t steps_waited() const;
  /// The reason for most of the waiting; kNone if it never waited. Waiting behind a sequence that waits for
  /// blocks counts as waiting for blocks (kBlocks).
  control::WaitReason waited_most_for() const;
  /// Whether its first token met its deadline.
  bool in_time() const { return ttft && *ttft <= ttft_deadline; }
};

/// One preemption and its cost.
struct PreemptionStory {
  SeqId victim = 0;
  std::optional<SeqId> needy;  // the sequence that needed a block; may be the victim itself
  uint64_t step = 0;
  uint64_t steps = 0;  // until it was admitted again, or until the end of the log
  Nanos took = 0;
  uint64_t again_tokens = 0;
  bool back = false;
};

/// The figures of a whole run.
struct RunStory {
  control::SchedulerConfig config;
  std::vector<SequenceStory> sequences;  // in order of arrival
  uint64_t first_part = 1;               // with which the log begins,
  uint64_t steps_before = 0;             // and after how many steps
  bool is_single_part = false;
  uint64_t steps = 0;
  uint64_t decisions = 0;
  uint64_t evictions = 0;
  std::optional<uint64_t> evicted_needed;  // how many of these were needed again later; nullopt: unknown
  uint64_t copies = 0;
  uint64_t restored = 0;  // blocks of the restored prefix cache
  uint64_t most_blocks_held = 0;
  uint64_t blocks_held_sum = 0;  // summed over the steps
  uint64_t running_sum = 0;      // running sequences, summed over the steps
  uint64_t waiting_sum = 0;
  uint64_t most_waiting = 0;
  uint64_t waiting_steps = 0;  // steps in which a sequence waited
  uint64_t queue_full = 0;     // requests that were refused because the queue was full
  uint64_t short_steps =
      0;  // steps in which the first in line waited for blocks, or a sequence was preempted
  std::vector<PreemptionStory> worst_preemptions;  // the few longest ones
  LineHistory line;
  Nanos duration = 0;      // from the first step to the last result
  bool truncated = false;  // whether the file was cut off
  std::string warning;     // why the times may not be what they seem
  std::optional<uint64_t> digest;

  bool ended_well() const { return digest.has_value(); }
  uint64_t last_step() const { return steps_before + steps; }
  /// The sequences behind which it waited by policy order, and their total number; the steps behind the first
  /// of them.
  struct Behind {
    SeqId most = 0;
    uint64_t steps = 0;
    size_t count = 0;
  };
  std::optional<Behind> behind(const SequenceStory& sequence) const;
};

/// Selects the sequences whose lines are written.
using WhoseLines = std::function<bool(SeqId, std::string_view name)>;

/// Reads a recorded run and writes its story. Throws Error as RunReader does. The time is proportional to the
/// size of the record and to the waiting of the sequences whose lines are written.
RunStory tell_run(const std::filesystem::path& path, const WhoseLines& whose_lines = {});

/// The story of a run that nothing is read of yet.
RunStory begin_story(const RunReader& reader);

/// How it ended, in one word: "stop", "length", "aborted", "error", "refused", "runs on".
std::string_view end_name(const SequenceStory& story);

/// The same for display: "stop token", "stop string", "max_tokens reached", "aborted", ...
std::string_view end_text(const SequenceStory& story);

/// Names of tenants, in order of their first request: A, B, ... Z, T27, ...
class TenantNames {
 public:
  void add(uint64_t tenant) { numbers_.try_emplace(tenant, numbers_.size()); }
  size_t count() const { return numbers_.size(); }
  std::string name(uint64_t tenant) const;

 private:
  std::map<uint64_t, size_t> numbers_;
};

}  // namespace quire::record
