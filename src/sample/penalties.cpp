#include "sample/penalties.h"

#include <algorithm>
#include <limits>

#include "sample/processor.h"

namespace quire::sample {
namespace {

float finite(float x) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return std::clamp(x, -kMax, kMax);
}

}  // namespace

void TokenCounts::reset(std::span<const TokenId> tokens, size_t prompt_length) {
  entries_.clear();
  entries_.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) entries_.push_back({tokens[i], i < prompt_length ? 0U : 1U});
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
  size_t kept = 0;
  for (const Entry& entry : entries_) {
    if (kept > 0 && entries_[kept - 1].id == entry.id) {
      entries_[kept - 1].in_output += entry.in_output;
    } else {
      entries_[kept++] = entry;
    }
  }
  entries_.resize(kept);
}

void TokenCounts::add(TokenId id) {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), id,
                                   [](const Entry& entry, TokenId wanted) { return entry.id < wanted; });
  if (at != entries_.end() && at->id == id) {
    ++at->in_output;
  } else {
    entries_.insert(at, {id, 1});
  }
}

void apply_penalties(const SamplingParams& params, const TokenCounts& counts, std::span<float> logits) {
  for (const TokenCounts::Entry& entry : counts.entries()) {
    float& logit = logits[static_cast<size_t>(entry.id)];
    float x = logit > 0.0F ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (entry.in_output > 0) {
      x -= params.frequency_penalty * static_cast<float>(entry.in_output);
      x -= params.presence_penalty;
    }
    logit = finite(x);
  }
}

namespace {

class Penalties final : public LogitsProcessor {
 public:
  explicit Penalties(const ProcessorInputs& in) { counts_.reset(in.history, in.prompt_length); }
  void apply(const SamplingParams& params, uint32_t /*position*/, std::span<const uint32_t> /*mask*/,
             std::span<float> logits) const override {
    apply_penalties(params, counts_, logits);
  }
  void add(TokenId token) override { counts_.add(token); }

 private:
  TokenCounts counts_;
};

}  // namespace

std::unique_ptr<LogitsProcessor> make_penalties(const ProcessorInputs& in) {
  return in.params.has_penalties() ? std::make_unique<Penalties>(in) : nullptr;
}

}  // namespace quire::sample
