#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/rng.h"

namespace quire::sample {
namespace {

/// Empty if all logits are finite.
std::string why_not_finite(std::span<const float> logits, uint32_t position) {
  const size_t bad = first_not_finite(logits);
  if (bad == logits.size()) return {};
  return fmt::format("the logits for position {} are not finite: {} for token {}", position, logits[bad],
                     bad);
}

/// Of out.token: its logprob and rank, and the `count` best or, if there are any, `tokens`. No forbidden
/// token is among the best.
void add_logprobs(const LogitRow& row, int32_t count, std::span<const TokenId> tokens,
                  std::vector<LogitRow::Entry>& best, SampledToken& out) {
  const double log_sum = std::log(row.exp_sum());
  const auto logprob = [&](float value) {
    return static_cast<float>(static_cast<double>(value) - static_cast<double>(row.max()) - log_sum);
  };
  out.logprob = logprob(row.values()[static_cast<size_t>(out.token)]);
  out.rank = row.num_better(out.token) + 1;
  if (!tokens.empty()) {
    out.top.push_back({out.token, out.logprob});
    for (const TokenId id : tokens) {
      if (id != out.token) out.top.push_back({id, logprob(row.values()[static_cast<size_t>(id)])});
    }
    return;
  }
  row.best(static_cast<size_t>(count), best);
  for (const LogitRow::Entry& entry : best) {
    if (entry.value == kForbidden) break;
    out.top.push_back({entry.id, logprob(entry.value)});
  }
}

}  // namespace

std::string rate_token(std::span<const float> logits, uint32_t position, TokenId token, int32_t num_logprobs,
                       SamplerWorkspace& workspace, SampledToken& out) {
  if (std::string why = why_not_finite(logits, position); !why.empty()) return why;
  out.token = token;
  out.top.clear();
  add_logprobs(LogitRow(logits, workspace.maxima_), num_logprobs, {}, workspace.best_, out);
  return {};
}

SamplerWorkspace::SamplerWorkspace(size_t vocab_size) {
  processed_.reserve(vocab_size);
  maxima_.reserve(num_logit_blocks(vocab_size));
  processed_maxima_.reserve(num_logit_blocks(vocab_size));
  block_sums_.reserve(num_logit_blocks(vocab_size));
  best_.reserve(vocab_size);
  candidates_.reserve(vocab_size);
}

void SequenceSampler::reset(const SamplingParams& params, std::span<const TokenId> history,
                            size_t prompt_length) {
  params_ = params;
  processors_.clear();
  for (const ProcessorRow& row : kProcessors) {
    if (auto state = row.make({params_, history, prompt_length})) {
      processors_.push_back({row.name, std::move(state)});
    }
  }
}

NoToken SequenceSampler::sample(std::span<const float> logits, uint32_t position, SamplerWorkspace& workspace,
                                SampledToken& out, std::span<const uint32_t> mask) {
  if (std::string why = why_not_finite(logits, position); !why.empty()) return {std::move(why), false};
  const LogitRow own(logits, workspace.maxima_);
  std::optional<LogitRow> changed;
  if (!processors_.empty()) {
    workspace.processed_.assign(logits.begin(), logits.end());
    for (const Processor& one : processors_) one.state->apply(params_, position, mask, workspace.processed_);
    changed.emplace(workspace.processed_, workspace.processed_maxima_);
    if (changed->max() == kForbidden) {
      return {why_no_token(logits, position, mask, workspace.processed_), true};
    }
  }
  const LogitRow& row = changed ? *changed : own;
  out.token = params_.greedy() ? row.arg_max() : draw(row, position, workspace);
  out.logprob = 0.0F;
  out.rank = 0;
  out.top.clear();
  if (params_.num_logprobs >= 0) {
    const bool masked = params_.mask != kNoMask;
    if (masked && processors_.size() > 1) {  // not the mask alone has changed the row
      workspace.processed_.assign(logits.begin(), logits.end());
      forbid_unset(mask, workspace.processed_);
      changed.emplace(workspace.processed_, workspace.processed_maxima_);
    }
    add_logprobs(masked ? *changed : own, params_.num_logprobs, params_.logprob_tokens, workspace.best_, out);
  }
  for (const Processor& one : processors_) one.state->add(out.token);
  return {};
}

/// Names processors that together leave no token, none of which can be omitted.
std::string SequenceSampler::why_no_token(std::span<const float> logits, uint32_t position,
                                          std::span<const uint32_t> mask, std::vector<float>& scratch) const {
  std::vector<const Processor*> named;
  for (const Processor& one : processors_) named.push_back(&one);
  for (size_t i = 0; i < named.size();) {
    scratch.assign(logits.begin(), logits.end());
    for (size_t other = 0; other < named.size(); ++other) {
      if (other != i) named[other]->state->apply(params_, position, mask, scratch);
    }
    const bool needed = std::ranges::any_of(scratch, [](float x) { return x != kForbidden; });
    if (needed) {
      ++i;
    } else {
      named.erase(named.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  std::string names;
  for (size_t i = 0; i < named.size(); ++i) {
    names += fmt::format("{}{}", i == 0 ? "" : i + 1 == named.size() ? " and " : ", ", named[i]->name);
  }
  return fmt::format("{} {} no token for position {}", names, named.size() == 1 ? "leaves" : "leave",
                     position);
}

// Weights are e^((logit - max) / temperature). Each filter keeps all tokens of at least some logit, so min-p
// and top-k together keep those of at least the larger bound; a tie with the k-th stays, as in vLLM and
// Hugging Face's library.
TokenId SequenceSampler::draw(const LogitRow& row, uint32_t position, SamplerWorkspace& workspace) const {
  const double uniform = unit_interval(keyed_random(params_.seed, params_.choice, position));
  const float temperature = params_.temperature;
  const bool has_top_k = params_.top_k > 0 && static_cast<size_t>(params_.top_k) < row.size();
  const bool has_min_p = params_.min_p > 0.0F;
  float least = std::numeric_limits<float>::lowest();
  if (has_top_k) {
    row.best(static_cast<size_t>(params_.top_k), workspace.best_);
    least = std::max(least, workspace.best_.back().value);
  }
  if (has_min_p) least = std::max(least, row.max() + temperature * std::log(params_.min_p));
  std::optional<double> mass;  // of all tokens that the filters before top-p leave
  if (!has_top_k && !has_min_p) {
    const double sum = row.exp_sum(temperature, workspace.block_sums_);
    if (params_.top_p >= 1.0F) {
      return row.find_in_exp_sum(temperature, uniform * sum, workspace.block_sums_);
    }
    mass = sum;
    // Tokens below (1 - p) / vocabulary have less than 1 - p together, so none of them is needed to reach p.
    // The hundredth leaves room for rounding.
    const double bound = (1.0 - static_cast<double>(params_.top_p)) * sum / static_cast<double>(row.size());
    least = std::max(least, row.max() + temperature * (static_cast<float>(std::log(bound)) - 0.01F));
  }
  workspace.candidates_.clear();
  row.for_each_at_least(least, [&](TokenId id, float value) {
    const float weight = exp_nonpositive((value - row.max()) / temperature);
    if (weight > 0.0F) workspace.candidates_.push_back({id, value, weight});
  });
  if (!mass) {
    mass = 0.0;
    for (const auto& candidate : workspace.candidates_) *mass += static_cast<double>(candidate.weight);
  }
  return draw_from_candidates(uniform, *mass, workspace);
}

// Top-p: the most likely candidates until theirs reaches p of `mass`.
TokenId SequenceSampler::draw_from_candidates(double uniform, double mass,
                                              SamplerWorkspace& workspace) const {
  auto& candidates = workspace.candidates_;
  auto first = candidates.begin();
  if (params_.top_p < 1.0F) {
    const auto less_likely = [](const auto& a, const auto& b) {
      return a.value < b.value || (a.value == b.value && a.id > b.id);
    };
    const double wanted = static_cast<double>(params_.top_p) * mass;
    std::make_heap(candidates.begin(), candidates.end(), less_likely);
    mass = 0.0;
    for (first = candidates.end(); first != candidates.begin() && (mass < wanted || mass == 0.0);) {
      std::pop_heap(candidates.begin(), first, less_likely);
      --first;
      mass += static_cast<double>(first->weight);
    }
  }
  const double target = uniform * mass;
  double sum = 0.0;
  for (auto it = first; it != candidates.end(); ++it) {
    sum += static_cast<double>(it->weight);
    if (sum > target) return it->id;
  }
  return candidates.back().id;
}

}  // namespace quire::sample
