#pragma once

#include <cstddef>
#include <cstdint>

// What sampling on the device takes of its memory, by arithmetic: `quire inspect` asks for it where there is
// no CUDA.
namespace quire::backend::cuda {

struct SamplerLimits {
  uint32_t slots = 0;
  uint32_t rows = 0;       // that a step samples
  uint32_t positions = 0;  // tokens of a sequence
  uint32_t vocabulary = 0;
  /// About; rows that need a workspace and have none are sampled after the others. 64 of a vocabulary of 128k
  /// fit.
  size_t workspace_bytes = 192 << 20;
  /// Of the lists of one row, beside what the vocabulary and the longest sequence bound: bad words.
  size_t more_list_bytes = 256 << 10;
};

/// Of an executor: a step samples at most one row of each slot.
SamplerLimits sampler_limits(uint32_t num_slots, uint32_t max_positions, uint32_t vocab_size);

/// In bytes.
struct SamplerMemory {
  size_t tokens = 0;
  size_t workspace = 0;
  size_t lists = 0;
  size_t results = 0;  // of one step, in the host's memory
  uint32_t rows_at_once = 0;

  uint64_t on_device() const;
};
SamplerMemory lay_out_sampler(const SamplerLimits& limits);

/// What the executor's sampler takes on the device; 0 if the host samples, as the vocabulary is above
/// kMostSampledVocabulary.
uint64_t sampling_bytes(uint32_t num_slots, uint32_t max_positions, uint32_t vocab_size);

}  // namespace quire::backend::cuda
