#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "base/sampling_params.h"

namespace quire::test {

/// The logits after bias, penalties and bans, in double. `history`: all tokens, the first `prompt_length` the
/// prompt.
std::vector<double> reference_logits(std::span<const float> logits, const SamplingParams& params,
                                     std::span<const TokenId> history, size_t prompt_length);

/// The distribution that a token is drawn from, after the filters, by full sorts and in double. For greedy
/// parameters all of it lies on one token.
std::vector<double> reference_distribution(std::span<const float> logits, const SamplingParams& params,
                                           std::span<const TokenId> history = {}, size_t prompt_length = 0);

/// log-softmax in double.
std::vector<double> reference_logprobs(std::span<const float> logits);

/// P(X >= statistic) for a chi-square variable with `degrees` degrees of freedom (Wilson and Hilferty 1931).
double chi_square_tail(double statistic, size_t degrees);

}  // namespace quire::test
