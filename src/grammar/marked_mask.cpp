#include "grammar/marked_mask.h"

#include <memory>
#include <utility>

#include "grammar/mark_finder.h"

namespace quire::grammar {
namespace {

/// What all choices of a request share.
struct Shared {
  std::string mark;
  engine::MakeMaskSource inside;
  const tokenize::Tokenizer* tokenizer;
};

class MarkedMask final : public engine::MaskSource {
 public:
  explicit MarkedMask(std::shared_ptr<const Shared> shared)
      : shared_(std::move(shared)), mark_(shared_->mark) {}

  void fill(std::span<uint32_t> mask) override {
    if (inside_ != nullptr) inside_->fill(mask);
  }

  void accept(TokenId token) override {
    if (inside_ != nullptr) {
      inside_->accept(token);
      if (inside_->complete()) inside_ = nullptr;
      return;
    }
    const auto rest = mark_.take(shared_->tokenizer->token_bytes(token));
    if (!rest) return;
    inside_ = shared_->inside();
    // The token may have more than the end of the mark. What may not follow it is no call, and stays free.
    if (!rest->empty() && !inside_->accept_text(*rest)) inside_ = nullptr;
  }

  bool complete() const override { return inside_ == nullptr; }

 private:
  const std::shared_ptr<const Shared> shared_;
  std::unique_ptr<engine::MaskSource> inside_;  // null: outside
  MarkFinder mark_;
};

}  // namespace

engine::MakeMaskSource restrict_after(std::string mark, engine::MakeMaskSource inside,
                                      const tokenize::Tokenizer& tokenizer) {
  auto shared = std::make_shared<const Shared>(Shared{std::move(mark), std::move(inside), &tokenizer});
  return [shared = std::move(shared)] { return std::make_unique<MarkedMask>(shared); };
}

}  // namespace quire::grammar
