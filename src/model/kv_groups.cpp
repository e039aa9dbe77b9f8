#include "model/kv_groups.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace quire::model {
namespace {

uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

/// Layers a block, for windows (0 first) with so many layers each.
uint32_t pick_layers_per_block(const std::map<uint32_t, uint32_t>& layers_by_window) {
  uint32_t most = 0;
  for (const auto& [window, layers] : layers_by_window) most = std::max(most, layers);
  std::tuple<uint32_t, uint32_t, uint32_t> best = {UINT32_MAX, 0, 0};  // waste, waste, groups
  uint32_t best_size = most;
  for (uint32_t size = most; size > 0; --size) {
    uint32_t groups = 0;
    uint32_t waste_full = 0;
    uint32_t waste = 0;
    for (const auto& [window, layers] : layers_by_window) {
      const uint32_t count = ceil_div(layers, size);
      groups += count;
      (window == 0 ? waste_full : waste) += count * size - layers;
    }
    const std::tuple cost = {waste_full, waste, groups};
    if (cost < best && groups <= std::max<size_t>(kMaxKvGroups, layers_by_window.size())) {
      best = cost;
      best_size = size;
    }
  }
  return best_size;
}

}  // namespace

KvGroups group_layers(const ModelConfig& config) {
  const auto window_of = [&](uint32_t layer) {
    return config.windows[layer] < config.max_positions ? config.windows[layer] : 0;
  };
  std::map<uint32_t, uint32_t> layers_by_window;
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) ++layers_by_window[window_of(layer)];

  KvGroups out;
  out.of_layer.resize(config.num_layers);
  out.place.resize(config.num_layers);
  const uint32_t size = pick_layers_per_block(layers_by_window);
  for (const auto& [window, layers] : layers_by_window) {
    const uint32_t count = ceil_div(layers, size);
    const uint32_t each = ceil_div(layers, count);
    uint32_t next = 0;
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
      if (window_of(layer) != window) continue;
      out.of_layer[layer] = static_cast<uint32_t>(out.windows.size()) + next / each;
      out.place[layer] = next % each;
      ++next;
    }
    out.windows.insert(out.windows.end(), ceil_div(layers, each), window);
    out.layers_per_block = std::max(out.layers_per_block, each);
  }
  return out;
}

std::vector<std::vector<BlockId>> consecutive_tables(uint32_t num_groups, uint32_t rows, BlockId first) {
  std::vector<std::vector<BlockId>> out(num_groups, std::vector<BlockId>(rows));
  for (auto& table : out) {
    for (BlockId& block : table) block = first++;
  }
  return out;
}

}  // namespace quire::model
