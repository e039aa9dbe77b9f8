#include "record/key_set.h"

#include <map>
#include <unordered_set>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "record/seq_map.h"

namespace quire::record {
namespace {

TEST(KeySet, HasWhatAnUnorderedSetHas) {
  SplitMix64 random(7);
  for (const uint64_t range : {40U, 3000U}) {
    // Keys that share their low bits collide in every table; those near the top wrap around.
    const auto key = [&] { return 1 + random.below(range) * (random.below(2) == 0 ? 1 : 1U << 20); };
    KeySet set;
    std::unordered_set<uint64_t> expected;
    for (int i = 0; i < 60'000; ++i) {
      const uint64_t one = key();
      if (random.below(2) == 0) {
        set.insert(one);
        expected.insert(one);
      } else {
        ASSERT_EQ(set.erase(one), expected.erase(one) > 0) << i;
      }
      ASSERT_EQ(set.size(), expected.size());
    }
    for (const uint64_t one : std::unordered_set<uint64_t>(expected)) {
      EXPECT_TRUE(set.erase(one));
      EXPECT_FALSE(set.erase(one));
    }
    EXPECT_EQ(set.size(), 0U);
  }
}

TEST(KeySet, HasNothingAtFirst) { EXPECT_FALSE(KeySet().erase(5)); }

TEST(SeqMap, FindsWhatIsThereAndForgetsWhatIsErased) {
  SplitMix64 random(8);
  SeqMap<std::map<SeqId, uint64_t>> map;
  std::map<SeqId, uint64_t> expected;
  for (uint64_t i = 0; i < 60'000; ++i) {
    const SeqId id = random.below(3000);  // more than are remembered
    switch (random.below(4)) {
      case 0:
        ASSERT_EQ(map.try_emplace(id, i), expected.try_emplace(id, i).second);
        break;
      case 1:
        map.insert_or_assign(id, i);
        expected.insert_or_assign(id, i);
        break;
      case 2:
        map.erase(id);
        expected.erase(id);
        break;
      default:
        break;
    }
    const uint64_t* found = map.find(id);
    const auto other = expected.find(id);
    ASSERT_EQ(found != nullptr, other != expected.end());
    if (found != nullptr) {
      ASSERT_EQ(*found, other->second);
    }
  }
  EXPECT_EQ(map.all(), expected);
}

}  // namespace
}  // namespace quire::record
