#pragma once

#include <cstdint>

namespace quire::control {

/// The state of the control plane after a step, for the step trace, the metrics and the live page.
struct StepStats {
  uint64_t step = 0;
  uint32_t token_budget = 0;    // of this step
  uint32_t running = 0;         // sequences with a slot
  uint32_t waiting = 0;         // sequences in the queue
  uint32_t prefill_tokens = 0;  // computed in this step for prompts, and again after a preemption
  uint32_t decode_tokens = 0;   // computed in this step for sequences that had only their last token left
  uint32_t admitted = 0;
  uint32_t preempted = 0;
  uint32_t finished = 0;  // ended by this step's result (so not by abort)
  uint32_t blocks_total = 0;
  uint32_t blocks_referenced = 0;  // held by at least one block table
  uint32_t blocks_cached = 0;      // held by none, still in the prefix index; the other blocks are free
  uint32_t blocks_shared = 0;      // held by two or more block tables
  uint32_t blocks_saved = 0;       // sum of (reference count - 1): what sharing saves
  uint32_t slots_unused = 0;  // token positions in referenced blocks that hold no token yet (fragmentation)
  uint32_t copies = 0;        // copy-on-write in this step
  uint32_t swapped_out = 0;   // blocks moved to the host in this step
  uint32_t swapped_in = 0;    // and back
  uint32_t host_blocks_used = 0;
  uint64_t total_preemptions = 0;            // this and all the following: since the start
  uint64_t total_prefix_queried_tokens = 0;  // prompt tokens looked up at first admission, forks left out
  uint64_t total_prefix_hit_tokens = 0;      // of these, the tokens found
  uint64_t total_evictions = 0;
  uint64_t total_copies = 0;
};

}  // namespace quire::control
