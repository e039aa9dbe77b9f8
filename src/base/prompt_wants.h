#pragma once

#include <cstdint>
#include <vector>

#include "base/sampling_params.h"

namespace quire {

/// The hidden state that stands for a whole prompt; all hidden states are those after the final norm.
enum class Pooling : uint8_t {
  kNone,
  kLast,  // of the prompt's last token
  kMean,  // the mean over all prompt tokens, added in order of position
};

/// What a request wants of its prompt, besides sampled tokens.
///
/// Row r of a prompt is the model's own distribution after the tokens [0, r]. The prompt's token at r + 1 is
/// scored by row r, so a prompt of n tokens has n - 1 rows.
struct PromptWants {
  int32_t logprobs = -1;   // -1: no rows; k >= 0: of each row the k best, and those of the token after it
  uint32_t first_row = 0;  // rows from this one on
  Pooling pooling = Pooling::kNone;

  bool any() const { return logprobs >= 0 || pooling != Pooling::kNone; }
  friend bool operator==(const PromptWants&, const PromptWants&) = default;
};

struct PromptRow {
  uint32_t row = 0;
  SampledToken next;  // the prompt's token at row + 1, its logprob and rank, and the best tokens
};

/// A part of what was wanted of a prompt.
struct PromptYield {
  std::vector<PromptRow> rows;
  std::vector<float> pooled;  // empty if it is not in this part

  bool empty() const { return rows.empty() && pooled.empty(); }
};

}  // namespace quire
