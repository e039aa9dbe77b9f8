#include "tests/sample/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace quire::test {
namespace {

void normalise(std::vector<double>& p) {
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
}

bool is_forbidden(TokenId id, const SamplingParams& params, std::span<const TokenId> output) {
  if (output.size() < params.min_tokens && std::ranges::count(params.end_tokens, id) > 0) return true;
  for (std::vector<TokenId> word : params.bad_words) {
    std::vector<TokenId> said(output.begin(), output.end());
    said.push_back(id);
    if (said.size() < word.size()) continue;
    said.erase(said.begin(), said.end() - static_cast<ptrdiff_t>(word.size()));
    if (said == word) return true;
  }
  return !params.allowed_tokens.empty() && std::ranges::count(params.allowed_tokens, id) == 0;
}

}  // namespace

std::vector<double> reference_logits(std::span<const float> logits, const SamplingParams& params,
                                     std::span<const TokenId> history, size_t prompt_length) {
  std::vector<double> x(logits.begin(), logits.end());
  for (const auto& [id, bias] : params.logit_bias) x[static_cast<size_t>(id)] += static_cast<double>(bias);
  const std::set<TokenId> seen(history.begin(), history.end());
  const auto penalty = static_cast<double>(params.repetition_penalty);
  for (const TokenId id : seen) {
    double& logit = x[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
  const std::set<TokenId> in_output(history.begin() + static_cast<ptrdiff_t>(prompt_length), history.end());
  for (size_t i = prompt_length; i < history.size(); ++i) {
    x[static_cast<size_t>(history[i])] -= static_cast<double>(params.frequency_penalty);
  }
  for (const TokenId id : in_output)
    x[static_cast<size_t>(id)] -= static_cast<double>(params.presence_penalty);
  for (size_t i = 0; i < x.size(); ++i) {
    if (is_forbidden(static_cast<TokenId>(i), params, history.subspan(prompt_length))) {
      x[i] = -std::numeric_limits<double>::infinity();
    }
  }
  return x;
}

std::vector<double> reference_distribution(std::span<const float> logits, const SamplingParams& params,
                                           std::span<const TokenId> history, size_t prompt_length) {
  const std::vector<double> x = reference_logits(logits, params, history, prompt_length);
  const double max = *std::max_element(x.begin(), x.end());
  std::vector<double> p(x.size(), 0.0);
  if (params.greedy()) {
    p[static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin())] = 1.0;
    return p;
  }
  for (size_t i = 0; i < x.size(); ++i)
    p[i] = std::exp((x[i] - max) / static_cast<double>(params.temperature));
  normalise(p);
  const double most = *std::max_element(p.begin(), p.end());
  std::vector<double> sorted = x;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  for (size_t i = 0; i < x.size(); ++i) {
    if (p[i] < static_cast<double>(params.min_p) * most) p[i] = 0.0;
    if (params.top_k > 0 && static_cast<size_t>(params.top_k) < x.size() &&
        x[i] < sorted[static_cast<size_t>(params.top_k) - 1]) {
      p[i] = 0.0;
    }
  }
  normalise(p);
  if (params.top_p < 1.0F) {
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
    double mass = 0.0;
    for (const size_t i : order) {
      const bool keep = mass < static_cast<double>(params.top_p);
      mass += p[i];
      if (!keep) p[i] = 0.0;
    }
    normalise(p);
  }
  return p;
}

std::vector<double> reference_logprobs(std::span<const float> logits) {
  const auto max = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - max);
  std::vector<double> out;
  for (const float x : logits) out.push_back(static_cast<double>(x) - max - std::log(sum));
  return out;
}

double chi_square_tail(double statistic, size_t degrees) {
  const auto k = static_cast<double>(degrees);
  const double z = (std::cbrt(statistic / k) - (1.0 - 2.0 / (9.0 * k))) / std::sqrt(2.0 / (9.0 * k));
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

}  // namespace quire::test
