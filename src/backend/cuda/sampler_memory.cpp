#include "backend/cuda/sampler_memory.h"

#include <algorithm>

#include "backend/cuda/sample.h"
#include "backend/cuda/sample_lists.h"
#include "sample/logits.h"

namespace quire::backend::cuda {
namespace {

size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

size_t sample_workspace_bytes(uint32_t vocabulary) {
  const size_t spans = sample::num_logit_blocks(vocabulary);
  return aligned(spans * sample::kLogitBlock * (2 * sizeof(uint64_t) + sizeof(float)) +
                 spans * sizeof(float));
}

SamplerLimits sampler_limits(uint32_t num_slots, uint32_t max_positions, uint32_t vocab_size) {
  return {.slots = num_slots, .rows = num_slots, .positions = max_positions, .vocabulary = vocab_size};
}

uint64_t SamplerMemory::on_device() const { return tokens + workspace + lists; }

SamplerMemory lay_out_sampler(const SamplerLimits& limits) {
  const size_t of_row = sample_workspace_bytes(limits.vocabulary);
  const auto at_once = std::clamp<size_t>(limits.workspace_bytes / of_row, 1, limits.rows);
  const size_t vocabulary = limits.vocabulary;
  const size_t masks = (vocabulary + 31) / 32 * sizeof(uint32_t) * 2;
  const size_t counts = std::min<size_t>(limits.positions, vocabulary) * sizeof(CountedToken);
  return {.tokens = size_t{limits.slots} * kPlacesOfSlot * sizeof(TokenId),
          .workspace = at_once * of_row,
          .lists = aligned(limits.more_list_bytes + vocabulary * sizeof(BiasedToken) + counts + masks),
          .results = limits.rows * (sizeof(SampledRow) + kMaxLogprobTokens * sizeof(float)),
          .rows_at_once = static_cast<uint32_t>(at_once)};
}

uint64_t sampling_bytes(uint32_t num_slots, uint32_t max_positions, uint32_t vocab_size) {
  if (vocab_size > kMostSampledVocabulary) return 0;
  return lay_out_sampler(sampler_limits(num_slots, max_positions, vocab_size)).on_device();
}

}  // namespace quire::backend::cuda
