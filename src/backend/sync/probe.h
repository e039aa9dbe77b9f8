#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/sync/step_model.h"
#include "base/ids.h"

namespace quire::backend::sync {

/// The pool that a model has, and what may run in it.
struct ProbedPool {
  uint32_t num_blocks = 0;
  uint32_t num_groups = 1;  // of K/V
  uint32_t block_size = 0;  // tokens
  uint32_t longest = 0;     // tokens of a sequence
  uint32_t vocab_size = 0;
};

/// Backend::probe for a model that runs step by step: how many prompt tokens it computes in `step_time`, and
/// what a token of context adds, measured on the empty pool, which is overwritten. `block_bytes`: those of
/// all its layers. Throws Error if the device fails.
StepSpeeds probe(StepModel& model, const ProbedPool& pool, Nanos step_time, uint64_t block_bytes);

}  // namespace quire::backend::sync
