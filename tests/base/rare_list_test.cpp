#include "base/rare_list.h"

#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/ids.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(RareList, TakesAPointerWhileItIsEmpty) { EXPECT_EQ(sizeof(RareList<TokenId>), sizeof(void*)); }

TEST(RareList, IsAListLikeOthers) {
  RareList<TokenId> list;
  EXPECT_TRUE(list.empty());
  EXPECT_THAT(list, IsEmpty());
  list = {3, 4};
  EXPECT_FALSE(list.empty());
  EXPECT_THAT(list, ElementsAre(3, 4));
  EXPECT_EQ(list[1], 4);
  EXPECT_EQ(std::span<const TokenId>(list).size(), 2U);
  list = std::vector<TokenId>{5};
  EXPECT_THAT(list, ElementsAre(5));
  list.write().clear();
  EXPECT_TRUE(list.empty());
  list.write().push_back(6);
  EXPECT_THAT(list, ElementsAre(6));
}

TEST(RareList, ACopyIsAnotherList) {
  RareList<TokenId> list = {1, 2};
  RareList<TokenId> copy = list;
  copy.write().push_back(3);
  EXPECT_THAT(list, ElementsAre(1, 2));
  EXPECT_THAT(copy, ElementsAre(1, 2, 3));
  list = copy;
  EXPECT_THAT(list, ElementsAre(1, 2, 3));
  const RareList<TokenId> moved = std::move(copy);
  EXPECT_THAT(moved, ElementsAre(1, 2, 3));
  list = {};
  EXPECT_TRUE(list.empty());
}

}  // namespace
}  // namespace quire
