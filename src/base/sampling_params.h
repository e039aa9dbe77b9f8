#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/rare_list.h"

namespace quire {

/// Instead of the number of a mask source: none.
inline constexpr uint32_t kNoMask = UINT32_MAX;

/// As in vLLM.
inline constexpr uint32_t kMaxLogprobTokens = 128;

/// How the next token of a sequence is chosen. Defaults leave the model's distribution as it is. Order of
/// operations: logit bias, penalties, the parameters that forbid tokens, temperature, min-p and top-k (each
/// on that whole distribution), top-p on what they leave, draw. If these parameters leave no token, the
/// sequence ends with an error that names them. Logprobs are those of the model's own distribution (before
/// any of these), as vLLM's default has it; with a mask, of that distribution over the tokens that the mask
/// permits, whose probabilities sum to 1. Ranges are checked when a request arrives; an executor may rely on
/// them.
struct SamplingParams {
  float temperature = 1.0F;                        // >= 0; 0 is greedy (arg max, lowest id on a tie)
  int32_t top_k = 0;                               // >= 1, or 0: all
  float top_p = 1.0F;                              // (0, 1]
  float min_p = 0.0F;                              // [0, 1]
  float repetition_penalty = 1.0F;                 // > 0; over prompt and output (Keskar et al. 2019)
  float presence_penalty = 0.0F;                   // [-2, 2]; over the output
  float frequency_penalty = 0.0F;                  // [-2, 2]; over the output
  RareList<std::pair<TokenId, float>> logit_bias;  // ids in the vocabulary, sorted by id, no id twice

  // These forbid tokens. All ids are in the vocabulary.
  uint32_t min_tokens = 0;  // of output before any of end_tokens
  RareList<TokenId> end_tokens;
  RareList<std::vector<TokenId>> bad_words;  // not in the output; each has at least one token
  RareList<TokenId> allowed_tokens;          // no other token; sorted, no id twice; empty: any token
  uint32_t mask = kNoMask;                   // the mask source whose masks apply to each token

  uint64_t seed = 0;
  uint32_t choice = 0;        // index among the n choices of the request
  int32_t num_logprobs = -1;  // -1: none; k >= 0: those of the sampled token and of the k best (k <= 20)
  /// If there are any, and num_logprobs >= 0: the tokens whose logprobs are given instead of those of the
  /// best. At most kMaxLogprobTokens, no id twice.
  RareList<TokenId> logprob_tokens;

  bool greedy() const { return temperature == 0.0F; }
  /// The most entries of SampledToken::top.
  size_t most_logprobs() const {
    if (num_logprobs < 0) return 0;
    return logprob_tokens.empty() ? static_cast<size_t>(num_logprobs) : logprob_tokens.size() + 1;
  }
  bool has_penalties() const {
    return repetition_penalty != 1.0F || presence_penalty != 0.0F || frequency_penalty != 0.0F;
  }
  /// The choice depends on earlier tokens.
  bool needs_history() const { return has_penalties() || !bad_words.empty(); }
};

/// The values for parameters that a request omits (from a model's generation_config.json). Empty: the neutral
/// value of SamplingParams.
struct SamplingDefaults {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
};

/// A token with its log probability, as SamplingParams says; -infinity if a mask forbids the token.
struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0F;
};

/// The token sampled at one position.
struct SampledToken {
  TokenId token = 0;
  float logprob = 0.0F;  // of `token`; 0 if no logprobs were asked for
  uint32_t rank = 0;     // 1 = most likely, of those that a mask permits; 0 if no logprobs were asked for
  /// The num_logprobs best, best first, lowest id first on a tie; fewer where a mask permits fewer. With
  /// logprob_tokens: `token`, then these in their order, without `token`.
  std::vector<TokenLogprob> top;
};

}  // namespace quire
