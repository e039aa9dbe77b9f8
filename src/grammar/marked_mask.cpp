#include "grammar/marked_mask.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "grammar/mark_finder.h"

namespace quire::grammar {
namespace {

/// What all choices of a request share.
struct SharedByMarks {
  std::vector<Mark> marks;
  engine::MakeMaskSource inside;
  const tokenize::Tokenizer* tokenizer;
};

class MarkedMask final : public engine::MaskSource {
 public:
  explicit MarkedMask(std::shared_ptr<const SharedByMarks> shared) : shared_(std::move(shared)) {
    for (const Mark& mark : shared_->marks) {
      if (mark.at_start) starts_.emplace_back(mark.text);
    }
    look_for_marks();
  }

  void fill(std::span<uint32_t> mask) override {
    if (inside_ != nullptr) inside_->fill(mask);
  }

  void accept(TokenId token) override {
    if (inside_ != nullptr) {
      inside_->accept(token);
      if (inside_->complete()) inside_ = nullptr;
      return;
    }
    const std::string text = shared_->tokenizer->token_bytes(token);
    std::optional<std::string> calls;
    for (StartFinder& start : starts_) {
      if (auto found = start.take(text)) calls = std::move(found);
    }
    std::erase_if(starts_, [](const StartFinder& start) { return start.ended(); });
    for (auto& [mark, finder] : finders_) {
      if (auto rest = finder.take(text)) calls = mark->text.substr(mark->text.size() - mark->kept) + *rest;
    }
    if (calls) begin(*calls);
  }

  bool complete() const override { return inside_ == nullptr; }

 private:
  void look_for_marks() {
    finders_.clear();
    for (const Mark& mark : shared_->marks) {
      if (!mark.at_start) finders_.emplace_back(&mark, MarkFinder(mark.text));
    }
  }

  /// `text`: what follows the mark already.
  void begin(const std::string& text) {
    starts_.clear();
    look_for_marks();
    inside_ = shared_->inside();
    if (!text.empty() && !inside_->accept_text(text)) inside_ = nullptr;
  }

  const std::shared_ptr<const SharedByMarks> shared_;
  std::unique_ptr<engine::MaskSource> inside_;  // null: outside
  std::vector<StartFinder> starts_;
  std::vector<std::pair<const Mark*, MarkFinder>> finders_;
};

}  // namespace

engine::MakeMaskSource restrict_after(std::vector<Mark> marks, engine::MakeMaskSource inside,
                                      const tokenize::Tokenizer& tokenizer) {
  auto shared =
      std::make_shared<const SharedByMarks>(SharedByMarks{std::move(marks), std::move(inside), &tokenizer});
  return [shared = std::move(shared)] { return std::make_unique<MarkedMask>(shared); };
}

}  // namespace quire::grammar
