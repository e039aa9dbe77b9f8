#include "grammar/either_mask.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

namespace quire::grammar {
namespace {

class EitherMask final : public engine::MaskSource {
 public:
  EitherMask(std::unique_ptr<engine::MaskSource> a, std::unique_ptr<engine::MaskSource> b)
      : ways_{Way{std::move(a), {}}, Way{std::move(b), {}}} {}

  void fill(std::span<uint32_t> mask) override {
    std::ranges::fill(mask, 0U);
    for (Way& way : ways_) {
      if (way.source == nullptr) continue;
      way.mask.assign(mask.size(), ~0U);
      way.source->fill(way.mask);
      for (size_t i = 0; i < mask.size(); ++i) mask[i] |= way.mask[i];
    }
  }

  /// A way that has not permitted the token ends.
  void accept(TokenId token) override {
    for (Way& way : ways_) {
      if (way.source == nullptr) continue;
      if (way.mask.empty() || backend::allows(way.mask, token)) {
        way.source->accept(token);
      } else {
        way = {};
      }
    }
  }

  bool accept_text(std::string_view text) override {
    for (Way& way : ways_) {
      if (way.source != nullptr && !way.source->accept_text(text)) way = {};
    }
    return std::ranges::any_of(ways_, [](const Way& way) { return way.source != nullptr; });
  }

  bool complete() const override {
    return std::ranges::any_of(
        ways_, [](const Way& way) { return way.source != nullptr && way.source->complete(); });
  }

 private:
  struct Way {
    std::unique_ptr<engine::MaskSource> source;  // null: the answer has left it
    std::vector<uint32_t> mask;                  // of the next token
  };
  std::array<Way, 2> ways_;
};

}  // namespace

engine::MakeMaskSource either(engine::MakeMaskSource a, engine::MakeMaskSource b) {
  return [a = std::move(a), b = std::move(b)] { return std::make_unique<EitherMask>(a(), b()); };
}

}  // namespace quire::grammar
