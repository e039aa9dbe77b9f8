#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/executor.h"
#include "control/request.h"
#include "control/scheduler.h"

namespace quire::test {

/// All that came of one sequence.
struct Continuation {
  PromptYield prompt;
  std::vector<SampledToken> tokens;
  control::FinishReason finish = control::FinishReason::kAbort;
  uint32_t cached_tokens = 0;
  std::string error;
};

/// What a run went through, from the StepStats of its steps and from the plans.
struct RunLog {
  uint64_t steps = 0;
  uint32_t most_decoding = 0;  // sequences that decoded in one step
  uint32_t most_prefill = 0;   // prompt tokens in one step
  uint64_t chunked = 0;        // steps of sequences that asked for no logits
  uint64_t preemptions = 0;
  uint64_t hit_tokens = 0;
  uint64_t copies = 0;
  uint64_t swapped_out = 0;  // blocks
  uint64_t swapped_in = 0;
  uint64_t late_tokens = 0;  // decoded before they were known
  uint32_t blocks_left = 0;  // referenced after the last step
};

/// Adds all sequences to the scheduler and drives it over the executor to the end; the invariants are checked
/// after each step. Up to `depth` steps are open at once. The continuations come in the order of `specs`.
std::vector<Continuation> run_to_end(control::Scheduler& scheduler, backend::Executor& executor,
                                     const std::vector<control::SeqSpec>& specs, RunLog& log,
                                     uint32_t depth = 1);

/// Thirty-two sequences (or `count`) with prompts of 20 to 59 tokens that share some of their beginnings:
/// greedy and sampled, with all filters, penalties, biases, the five best logprobs, and masks that depend on
/// all tokens before. Of some prompts rows
/// are wanted, of some a pooled state; one in eight wants no token.
std::vector<control::SeqSpec> mixed_requests(uint32_t vocab_size, uint32_t count, uint32_t max_tokens);

/// Empty if both are the same to the bit, else what differs.
std::string difference(const std::vector<Continuation>& a, const std::vector<Continuation>& b);

}  // namespace quire::test
