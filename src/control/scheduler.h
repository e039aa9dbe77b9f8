#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "control/request.h"
#include "control/step.h"

namespace quire {

struct SchedulerConfig {
  uint32_t num_blocks = 0;
  uint32_t block_size = 16;
  uint32_t max_num_seqs = 64;             // slots
  uint32_t max_num_batched_tokens = 512;  // token budget of a step, >= max_num_seqs
  uint32_t max_model_len = 0;
  uint32_t max_waiting = 1024;  // beyond: kQueueFull
  /// Blocks that an admission leaves free, so that those running can grow before somebody must be preempted.
  /// In hundredths of a percent of num_blocks (100 = 1 %).
  uint32_t watermark_bp = 100;
  bool enable_prefix_caching = true;
};

/// State of the control plane after a step; for the trace, the metrics and the live page.
struct StepStats {
  uint64_t step = 0;
  uint32_t running = 0;
  uint32_t waiting = 0;
  uint32_t prefill_tokens = 0;  // computed in this step for sequences whose prompt was not yet computed
  uint32_t decode_tokens = 0;   // sequences that computed one token after their prompt
  uint32_t admitted = 0;
  uint32_t preempted = 0;
  uint32_t finished = 0;
  uint32_t blocks_total = 0;
  uint32_t blocks_referenced = 0;  // held by at least one block table
  uint32_t blocks_cached = 0;      // held by none, contents still in the prefix index: free to take
  uint32_t blocks_shared = 0;      // held by two or more block tables
  uint32_t blocks_saved = 0;       // sum of (reference count - 1): what sharing saves
  uint32_t slots_unused =
      0;                // token places in referenced blocks that hold no token yet (internal fragmentation)
  uint32_t copies = 0;  // copy-on-write in this step
  // Since the start:
  uint64_t total_preemptions = 0;
  uint64_t total_prefix_queried_tokens = 0;  // prompt tokens looked up at admission
  uint64_t total_prefix_hit_tokens = 0;      // of these, found
  uint64_t total_evictions = 0;
  uint64_t total_copies = 0;
};

/// Decides what every step computes: continuous batching with chunked prefill under a token budget over a
/// paged, prefix-cached block pool. Pure: no clock, no I/O, no thread; same inputs, same plans. Not
/// thread-safe.
///
/// A sequence has `computed` and `total` tokens; each step lets `computed` chase `total`. Prefill, decode,
/// recomputation after a preemption and prefix hits are the same case. Yu et al. 2022 (Orca), Kwon et al.
/// 2023 (PagedAttention), Agrawal et al. 2024 (Sarathi-Serve: decodes first, prefill in the budget left).
///
/// Use: add* -> plan -> (executor) -> commit -> plan ... A plan must be committed before the next is made.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();
  Scheduler(Scheduler&&) noexcept;
  Scheduler& operator=(Scheduler&&) noexcept;

  /// Queues a sequence. Refused: kTooLong (with both numbers) if it could never run alone in the pool or
  /// exceeds max_model_len, kQueueFull if max_waiting wait already, kInternal if the id is taken.
  Expected<void> add(SeqSpec spec);

  /// Ends a sequence from outside, at any moment between plan/commit pairs or between plan and commit (then
  /// what the plan computes for it is dropped). Unknown or ended ids are ignored: the end may have crossed
  /// the call.
  void abort(SeqId id);

  /// What the next step computes; empty() if there is nothing to do or nothing can run.
  StepPlan plan(Nanos now);

  /// Takes in what the executor made of the plan. Events in plan order. One for every sampled token and every
  /// end (except ends by abort).
  std::vector<SeqEvent> commit(const StepPlan& plan, const StepResult& result);

  bool has_work() const;           // anything waiting or running
  const StepStats& stats() const;  // after the last commit
  const SchedulerConfig& config() const;

  /// Empty if every invariant of docs/architecture.md holds, else the first that does not. O(blocks +
  /// tokens).
  std::string check_invariants() const;

  /// Forgets all cached blocks that nobody holds.
  void reset_prefix_cache();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
