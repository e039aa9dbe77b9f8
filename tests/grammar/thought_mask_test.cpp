#include "grammar/thought_mask.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/letter_tokenizer.h"

namespace quire::grammar {
namespace {

constexpr uint32_t kVocab = 128;

/// The token of a letter.
TokenId id(char letter) { return letter - 'a' + 26; }

/// One of its tokens opens a thought.
class Letters final : public test::LetterTokenizer {
 public:
  Letters() : LetterTokenizer(kVocab) {}
  std::optional<TokenId> find_token(std::string_view text) const override { return id(text.front()); }
};

/// Allows one token, and remembers what it is told.
class OnlyX final : public engine::MaskSource {
 public:
  explicit OnlyX(std::vector<TokenId>& told) : told_(told) {}
  void fill(std::span<uint32_t> mask) override {
    std::ranges::fill(mask, 0U);
    mask[static_cast<size_t>(id('x')) / 32] |= 1U << (static_cast<size_t>(id('x')) % 32);
  }
  void accept(TokenId token) override { told_.push_back(token); }

 private:
  std::vector<TokenId>& told_;
};

std::vector<TokenId> allowed(engine::MaskSource& source) {
  std::vector<uint32_t> mask(kVocab / 32, UINT32_MAX);
  source.fill(mask);
  std::vector<TokenId> out;
  for (uint32_t token = 0; token < kVocab; ++token) {
    if ((mask[token / 32] >> (token % 32) & 1U) != 0) out.push_back(static_cast<TokenId>(token));
  }
  return out;
}

class ThoughtMaskTest : public testing::Test {
 protected:
  std::unique_ptr<engine::MaskSource> make(const Thought& thought, bool then = true) {
    engine::MakeMaskSource inner;
    if (then) inner = [this] { return std::make_unique<OnlyX>(told_); };
    return think_first(thought, inner, tokenizer_)();
  }
  Letters tokenizer_;
  std::vector<TokenId> told_;
};

TEST_F(ThoughtMaskTest, LeavesTheThoughtFreeAndThenRestricts) {
  const auto source = make({.open = "o", .close = "yz", .begun = true, .budget = {}, .ends = {7}});
  for (const char c : std::string("ayxy")) {
    EXPECT_EQ(allowed(*source).size(), kVocab - 1) << "all but the end";
    source->accept(id(c));
  }
  EXPECT_THAT(allowed(*source), testing::Not(testing::Contains(7)));
  source->accept(id('z'));
  EXPECT_THAT(allowed(*source), testing::ElementsAre(id('x')));
  source->accept(id('x'));
  EXPECT_THAT(told_, testing::ElementsAre(id('x')));
}

TEST_F(ThoughtMaskTest, BeginsWithTheThoughtOrWithout) {
  const Thought thought{.open = "o", .close = "yz", .begun = false, .budget = {}, .ends = {7}};
  const auto with = make(thought);
  EXPECT_THAT(allowed(*with), testing::ElementsAre(id('o'), id('x')));
  with->accept(id('o'));
  EXPECT_EQ(allowed(*with).size(), kVocab - 1);
  const auto without = make(thought);
  without->accept(id('x'));
  EXPECT_THAT(allowed(*without), testing::ElementsAre(id('x'))) << "no thought after the beginning";
  EXPECT_THAT(told_, testing::ElementsAre(id('x')));
}

TEST_F(ThoughtMaskTest, ClosesTheThoughtWhenTheBudgetIsSpent) {
  for (const bool then : {true, false}) {
    told_.clear();
    const auto source = make({.open = "o", .close = "yz", .begun = true, .budget = 2, .ends = {7}}, then);
    EXPECT_EQ(allowed(*source).size(), then ? kVocab - 1 : kVocab);
    source->accept(id('a'));
    source->accept(id('b'));
    EXPECT_THAT(allowed(*source), testing::ElementsAre(id('y')));
    source->accept(id('y'));
    EXPECT_THAT(allowed(*source), testing::ElementsAre(id('z')));
    source->accept(id('z'));
    EXPECT_EQ(allowed(*source).size(), then ? 1U : kVocab);
  }
  const auto none = make({.open = "o", .close = "yz", .begun = true, .budget = 0, .ends = {}});
  EXPECT_THAT(allowed(*none), testing::ElementsAre(id('y')));
}

}  // namespace
}  // namespace quire::grammar
