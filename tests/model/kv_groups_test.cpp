#include "model/kv_groups.h"

#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>

#include "backend/cpu/decoder.h"

namespace quire::model {
namespace {

using testing::ElementsAre;

/// Layers by window: {{0, 2}, {16, 3}} are two that see all, then three that see 16.
ModelConfig model(const std::vector<std::pair<uint32_t, uint32_t>>& layers) {
  ModelConfig config;
  config.max_positions = 1000;
  config.num_kv_heads = 1;
  config.head_dim = 8;
  for (const auto& [window, count] : layers) config.windows.insert(config.windows.end(), count, window);
  config.num_layers = static_cast<uint32_t>(config.windows.size());
  return config;
}

TEST(KvGroups, OneForMostModels) {
  for (const uint32_t window : {0U, 16U}) {
    const KvGroups groups = group_layers(model({{window, 7}}));
    EXPECT_THAT(groups.windows, ElementsAre(window));
    EXPECT_EQ(groups.layers_per_block, 7U);
    EXPECT_THAT(groups.place, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  }
}

TEST(KvGroups, OneAWindowWhereTheyAreEven) {
  const KvGroups groups = group_layers(model({{16, 1}, {0, 1}, {16, 1}, {0, 1}, {16, 1}, {0, 1}}));
  EXPECT_THAT(groups.windows, ElementsAre(0, 16));
  EXPECT_EQ(groups.layers_per_block, 3U);
  EXPECT_THAT(groups.of_layer, ElementsAre(1, 0, 1, 0, 1, 0));
  EXPECT_THAT(groups.place, ElementsAre(0, 0, 1, 1, 2, 2));
}

TEST(KvGroups, WasteLittleWhereTheyAreNot) {
  const KvGroups gemma_1b = group_layers(model({{512, 22}, {0, 4}}));  // 26 layers
  EXPECT_THAT(gemma_1b.windows, ElementsAre(0, 512, 512, 512, 512, 512, 512));
  EXPECT_EQ(gemma_1b.layers_per_block, 4U);
  const KvGroups gemma_27b = group_layers(model({{900, 52}, {0, 10}}));
  EXPECT_EQ(gemma_27b.windows.size(), 7U);
  EXPECT_EQ(gemma_27b.layers_per_block, 10U);
  const KvGroups qwen = group_layers(model({{0, 28}, {64, 8}}));
  EXPECT_THAT(qwen.windows, ElementsAre(0, 0, 64));
  EXPECT_EQ(qwen.layers_per_block, 14U);
}

TEST(KvGroups, AWindowThatNobodyLeavesIsNone) {
  EXPECT_THAT(group_layers(model({{1000, 2}, {0, 3}})).windows, ElementsAre(0));
  EXPECT_THAT(group_layers(model({{999, 2}, {0, 2}})).windows, ElementsAre(0, 999));
}

TEST(KvGroups, EveryLayerHasAPlaceOfItsOwn) {
  for (uint32_t full = 0; full < 14; ++full) {
    for (uint32_t small = 0; small < 14; ++small) {
      for (uint32_t large = 0; large < 3; ++large) {
        if (full + small + large == 0) continue;
        const ModelConfig config = model({{7, small}, {0, full}, {70, large}});
        const KvGroups groups = group_layers(config);
        EXPECT_LE(groups.windows.size(), kMaxKvGroups);
        EXPECT_TRUE(std::is_sorted(groups.windows.begin(), groups.windows.end()));
        std::set<std::pair<uint32_t, uint32_t>> taken;
        for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
          ASSERT_LT(groups.of_layer[layer], groups.windows.size());
          EXPECT_LT(groups.place[layer], groups.layers_per_block);
          EXPECT_EQ(groups.windows[groups.of_layer[layer]], config.windows[layer]);
          EXPECT_TRUE(taken.insert({groups.of_layer[layer], groups.place[layer]}).second);
        }
        for (uint32_t group = 0; group < groups.windows.size(); ++group) {
          EXPECT_TRUE(taken.contains({group, 0})) << "a group without layers";
        }
      }
    }
  }
}

TEST(KvCache, LayersOfAGroupLieApartAndGroupsShare) {
  ModelConfig config = model({{16, 2}, {0, 2}});
  backend::cpu::KvCache cache(config, DType::kF32, 3, 16);
  const size_t part = cache.block_bytes();
  EXPECT_EQ(part, size_t{2} * 16 * 8 * 4);
  EXPECT_EQ(cache.layer(1) - cache.layer(0), static_cast<ptrdiff_t>(3 * part));
  EXPECT_EQ(cache.layer(0), cache.layer(2));
  cache.layer(3)[2 * part + 5] = std::byte{7};
  cache.copy_block(cache, 2, 0);
  EXPECT_EQ(cache.layer(1)[5], std::byte{7});
}

}  // namespace
}  // namespace quire::model
