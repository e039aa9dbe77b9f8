#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/sampling_params.h"
#include "sample/logits.h"
#include "sample/processor.h"

namespace quire::sample {

/// Memory that sampling uses during one call; one per thread, reused. If the size of the vocabulary is given,
/// sampling allocates nothing.
class SamplerWorkspace {
 public:
  explicit SamplerWorkspace(size_t vocab_size);

 private:
  friend class SequenceSampler;
  friend std::string rate_token(std::span<const float>, uint32_t, TokenId, int32_t, SamplerWorkspace&,
                                SampledToken&);
  struct Candidate {
    TokenId id = 0;
    float value = 0.0F;
    float weight = 0.0F;
  };
  std::vector<float> processed_;         // logits after the processors
  std::vector<float> maxima_;            // of the spans of the model's own logits
  std::vector<float> processed_maxima_;  // of the spans of processed_
  std::vector<double> block_sums_;
  std::vector<LogitRow::Entry> best_;
  std::vector<Candidate> candidates_;
};

/// Rates a token that was not sampled: its logprob and rank at `position` and the `num_logprobs` best, as
/// SequenceSampler reports them of a token that it chose without a mask. Returns an empty string on success,
/// else that a logit is not finite; `out` is then invalid.
std::string rate_token(std::span<const float> logits, uint32_t position, TokenId token, int32_t num_logprobs,
                       SamplerWorkspace& workspace, SampledToken& out);

/// Why there is no token; `why` is empty if there is one.
struct NoToken {
  std::string why;       // a logit is not finite; or names the processors that forbid all tokens
  bool refused = false;  // the processors do: the request is at fault, not the model
};

/// Chooses the next tokens of one sequence. A draw depends on the logits, the parameters, the tokens so far
/// (only if needs_history()), the position and the mask; on nothing else, so not on the batch or on earlier
/// draws.
class SequenceSampler {
 public:
  /// Starts a sequence. `history`: all its tokens so far, of which the first `prompt_length` are the prompt;
  /// needed only if params.needs_history(). Ids in `params` and `history` are in the vocabulary.
  void reset(const SamplingParams& params, std::span<const TokenId> history, size_t prompt_length);

  const SamplingParams& params() const { return params_; }

  /// Chooses the token at `position` (its index in the sequence) into `out`, and tells it to the processors.
  /// Its logprobs are the model's own, or with a mask those of the model among the tokens of the mask.
  /// Reserve params().most_logprobs() in the `top` of `out` to avoid allocations. If there is no token, `out`
  /// is invalid. `mask`: only if params().mask is set, as LogitsProcessor::apply takes it.
  NoToken sample(std::span<const float> logits, uint32_t position, SamplerWorkspace& workspace,
                 SampledToken& out, std::span<const uint32_t> mask = {});

 private:
  struct Processor {
    std::string_view name;
    std::unique_ptr<LogitsProcessor> state;
  };

  std::string why_no_token(std::span<const float> logits, uint32_t position, std::span<const uint32_t> mask,
                           std::vector<float>& scratch) const;
  TokenId draw(const LogitRow& row, uint32_t position, SamplerWorkspace& workspace) const;
  TokenId draw_from_candidates(double uniform, double mass, SamplerWorkspace& workspace) const;

  SamplingParams params_;
  std::vector<Processor> processors_;  // that params_ ask for, in the order of kProcessors
};

}  // namespace quire::sample
