#include <algorithm>
#include <vector>

#include "sample/processor.h"

namespace quire::sample {
namespace {

/// Forbids the last token of each word whose other tokens the output ends with.
class BadWords final : public LogitsProcessor {
 public:
  explicit BadWords(const ProcessorInputs& in) {
    for (const std::vector<TokenId>& word : in.params.bad_words) most_ = std::max(most_, word.size() - 1);
    if (most_ == 0) return;
    recent_.reserve(most_ + 1);
    for (const TokenId token : in.history.subspan(in.prompt_length)) BadWords::add(token);
  }
  void apply(const SamplingParams& params, uint32_t /*position*/, std::span<const uint32_t> /*mask*/,
             std::span<float> logits) const override {
    for (const std::vector<TokenId>& word : params.bad_words) {
      const size_t before = word.size() - 1;
      if (before > recent_.size()) continue;
      if (!std::equal(word.begin(), word.end() - 1, recent_.end() - static_cast<ptrdiff_t>(before))) continue;
      logits[static_cast<size_t>(word.back())] = kForbidden;
    }
  }
  void add(TokenId token) override {
    if (most_ == 0) return;
    recent_.push_back(token);
    if (recent_.size() > most_) recent_.erase(recent_.begin());
  }

 private:
  size_t most_ = 0;              // tokens of a word but its last
  std::vector<TokenId> recent_;  // the output's last tokens, at most so many
};

}  // namespace

std::unique_ptr<LogitsProcessor> make_bad_words(const ProcessorInputs& in) {
  return in.params.bad_words.empty() ? nullptr : std::make_unique<BadWords>(in);
}

}  // namespace quire::sample
