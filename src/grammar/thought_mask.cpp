#include "grammar/thought_mask.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "grammar/mark_finder.h"

namespace quire::grammar {
namespace {

void forbid(std::span<uint32_t> mask, TokenId token) {
  const auto at = static_cast<size_t>(token);
  if (at / 32 < mask.size()) mask[at / 32] &= ~(1U << (at % 32));
}
void permit(std::span<uint32_t> mask, TokenId token) {
  const auto at = static_cast<size_t>(token);
  if (at / 32 < mask.size()) mask[at / 32] |= 1U << (at % 32);
}

/// What all choices of a request share.
struct SharedByThoughts {
  Thought thought;
  std::optional<TokenId> open;        // if one token opens it
  std::vector<TokenId> close_tokens;  // the mark
  const tokenize::Tokenizer* tokenizer;
};

class ThoughtMask final : public engine::MaskSource {
 public:
  ThoughtMask(std::shared_ptr<const SharedByThoughts> shared, std::unique_ptr<engine::MaskSource> then)
      : shared_(std::move(shared)),
        then_(std::move(then)),
        at_(shared_->thought.begun ? At::kThought : At::kStart),
        close_(shared_->thought.close) {}

  void fill(std::span<uint32_t> mask) override {
    if (at_ != At::kThought) {
      if (then_ != nullptr) then_->fill(mask);
      if (at_ == At::kStart && shared_->open) permit(mask, *shared_->open);
      return;
    }
    if (spent_ >= shared_->thought.budget.value_or(UINT32_MAX)) {
      std::ranges::fill(mask, 0U);
      permit(mask, shared_->close_tokens[closing_]);
    } else if (then_ != nullptr) {
      for (const TokenId end : shared_->thought.ends) forbid(mask, end);
    }
  }

  void accept(TokenId token) override {
    if (at_ == At::kStart && shared_->open && token == *shared_->open) {
      at_ = At::kThought;
    } else if (at_ != At::kThought) {
      at_ = At::kAnswer;
      if (then_ != nullptr) then_->accept(token);
    } else {
      think(token);
    }
  }

 private:
  enum class At : uint8_t { kStart, kThought, kAnswer };

  void think(TokenId token) {
    if (spent_ >= shared_->thought.budget.value_or(UINT32_MAX)) {
      if (++closing_ == shared_->close_tokens.size()) at_ = At::kAnswer;
      return;
    }
    ++spent_;
    if (close_.take(shared_->tokenizer->token_bytes(token))) at_ = At::kAnswer;
  }

  const std::shared_ptr<const SharedByThoughts> shared_;
  const std::unique_ptr<engine::MaskSource> then_;
  At at_;
  uint32_t spent_ = 0;  // tokens of the thought
  size_t closing_ = 0;  // tokens of the mark that the model had to write
  MarkFinder close_;
};

}  // namespace

engine::MakeMaskSource think_first(const Thought& thought, engine::MakeMaskSource then,
                                   const tokenize::Tokenizer& tokenizer) {
  auto shared = std::make_shared<SharedByThoughts>(SharedByThoughts{thought, std::nullopt, {}, &tokenizer});
  if (!thought.begun && !thought.open.empty()) shared->open = tokenizer.find_token(thought.open);
  shared->close_tokens = tokenizer.encode(thought.close, false);
  if (shared->close_tokens.empty()) throw Error("internal: a thought without a mark at its end");
  return [shared = std::shared_ptr<const SharedByThoughts>(std::move(shared)), then = std::move(then)] {
    return std::make_unique<ThoughtMask>(shared, then ? then() : nullptr);
  };
}

}  // namespace quire::grammar
