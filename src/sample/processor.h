#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/sampling_params.h"

namespace quire::sample {

/// A token's logit after a processor that forbids the token.
inline constexpr float kForbidden = -std::numeric_limits<float>::infinity();

/// Changes the logits of one sequence before a token is chosen, and keeps the state that this needs.
class LogitsProcessor {
 public:
  virtual ~LogitsProcessor() = default;
  /// Changes the logits for the token at `position`. Logits are finite or kForbidden, before and after.
  /// `params`: those that the processor was made for. `mask`: if params.mask is set, one bit per token, from
  /// the lowest bit of the first word on; a bit of 0 forbids its token.
  virtual void apply(const SamplingParams& params, uint32_t position, std::span<const uint32_t> mask,
                     std::span<float> logits) const = 0;
  /// The token that was chosen.
  virtual void add(TokenId /*token*/) {}
};

/// The sequence that a processor is made for, when it takes a slot.
struct ProcessorInputs {
  const SamplingParams& params;
  std::span<const TokenId> history;  // all tokens so far, if params.needs_history()
  size_t prompt_length = 0;
};

/// One kind of processor.
struct ProcessorRow {
  std::string_view name;  // of the parameter that asks for it; in errors
  /// nullptr if the parameters do not ask for it.
  std::unique_ptr<LogitsProcessor> (*make)(const ProcessorInputs& in);
};

/// Forbids the tokens whose bits are 0 in a mask as LogitsProcessor::apply takes it.
void forbid_unset(std::span<const uint32_t> mask, std::span<float> logits);

// One file each.
std::unique_ptr<LogitsProcessor> make_logit_bias(const ProcessorInputs& in);
std::unique_ptr<LogitsProcessor> make_penalties(const ProcessorInputs& in);
std::unique_ptr<LogitsProcessor> make_min_tokens(const ProcessorInputs& in);
std::unique_ptr<LogitsProcessor> make_bad_words(const ProcessorInputs& in);
std::unique_ptr<LogitsProcessor> make_allowed_tokens(const ProcessorInputs& in);
std::unique_ptr<LogitsProcessor> make_token_mask(const ProcessorInputs& in);

/// In the order of application. Those that forbid tokens come last: the others make any logit finite.
inline constexpr ProcessorRow kProcessors[] = {
    {"logit_bias", make_logit_bias},
    {"penalties", make_penalties},
    {"min_tokens", make_min_tokens},
    {"bad_words", make_bad_words},
    {"allowed_token_ids", make_allowed_tokens},
    {"the grammar", make_token_mask},
};

}  // namespace quire::sample
