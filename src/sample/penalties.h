#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/sampling_params.h"

namespace quire::sample {

/// The distinct tokens of a sequence, and how often each is in its output.
class TokenCounts {
 public:
  struct Entry {
    TokenId id = 0;
    uint32_t in_output = 0;  // 0: only in the prompt
  };

  /// Starts over with all tokens of a sequence, of which the first `prompt_length` are its prompt.
  void reset(std::span<const TokenId> tokens, size_t prompt_length);
  /// One more token of the output.
  void add(TokenId id);
  /// Sorted by id, every id once.
  std::span<const Entry> entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

/// The definitions of vLLM and Hugging Face, in this order:
///   repetition (Keskar et al. 2019), tokens of prompt and output: logit > 0 is divided by it, else
///   multiplied; frequency, tokens of the output: minus frequency * count; presence, tokens of the output:
///   minus presence.
/// Results stay finite.
void apply_penalties(const SamplingParams& params, const TokenCounts& counts, std::span<float> logits);

}  // namespace quire::sample
