#include "base/token_list.h"

#include <span>
#include <stdexcept>

#include <gtest/gtest.h>

namespace quire {
namespace {

class Counted final : public TokenMaker {
 public:
  explicit Counted(int& made) : made_(made) {}
  uint32_t size() const override { return 3; }
  std::vector<TokenId> make() const override {
    if (made_++ < 0) throw std::runtime_error("not yet");
    return {5, 6, 7};
  }

 private:
  int& made_;
};

TEST(TokenList, IsMadeWhenItIsFirstRead) {
  int made = 0;
  TokenList list(std::make_unique<Counted>(made));
  EXPECT_EQ(list.size(), 3U);
  EXPECT_FALSE(list.empty());
  TokenList moved = std::move(list);
  EXPECT_EQ(moved.size(), 3U);
  EXPECT_EQ(made, 0);
  EXPECT_EQ(moved.end() - moved.begin(), 3) << "in whichever order the two are called";
  EXPECT_EQ(made, 1);
  moved.push_back(8);
  EXPECT_EQ(moved.size(), 4U);
  EXPECT_EQ(moved[1], 6);
  EXPECT_EQ(moved.back(), 8);
  EXPECT_EQ(std::span(moved).subspan(2)[0], 7);
  EXPECT_EQ(made, 1);
}

TEST(TokenList, IsMadeAgainUnlessItHasChanged) {
  int made = 0;
  TokenList list(std::make_unique<Counted>(made));
  list.forget();
  EXPECT_EQ(list[2], 7);
  list.forget();
  EXPECT_EQ(list.size(), 3U);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(list[0], 5);
  EXPECT_EQ(made, 2);
  list.push_back(8);
  list.forget();
  EXPECT_EQ(list.size(), 4U);
  EXPECT_EQ(list[3], 8);
  EXPECT_EQ(made, 2);
}

TEST(TokenList, ACopyHasTheTokensOfItsOwn) {
  int made = 0;
  const TokenList list(std::make_unique<Counted>(made));
  TokenList copy = list;
  copy.write().clear();
  EXPECT_TRUE(copy.empty());
  EXPECT_EQ(list.size(), 3U);
  EXPECT_EQ(made, 1);
}

TEST(TokenList, AMakerThatFailsIsAskedAgain) {
  int made = -1;
  const TokenList list(std::make_unique<Counted>(made));
  EXPECT_THROW(list[0], std::runtime_error);
  EXPECT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0], 5);
}

}  // namespace
}  // namespace quire
