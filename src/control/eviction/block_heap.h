#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace quire::control {

/// Blocks ordered by key, the lowest first: a binary heap that knows the place of each block, so that any
/// block can be removed. Each call is O(log blocks), first() is O(1), and no call allocates.
class BlockHeap {
 public:
  using Key = std::tuple<uint64_t, uint64_t, BlockId>;  // rank, order, block

  explicit BlockHeap(uint32_t num_blocks) : places_(num_blocks) { keys_.reserve(num_blocks); }

  bool empty() const { return keys_.empty(); }
  BlockId first() const { return keys_.empty() ? kNoBlock : std::get<BlockId>(keys_.front()); }
  /// REQUIRES: the block of the key is not in the heap.
  void insert(const Key& key) {
    keys_.push_back(key);
    rise(keys_.size() - 1, key);
  }
  /// REQUIRES: the block is in the heap.
  void erase(BlockId block) {
    const size_t hole = places_[block];
    const Key last = keys_.back();
    keys_.pop_back();
    if (hole == keys_.size()) return;
    if (hole > 0 && last < keys_[(hole - 1) / 2]) return rise(hole, last);
    sink(hole, last);
  }

 private:
  void put(size_t place, const Key& key) {
    keys_[place] = key;
    places_[std::get<BlockId>(key)] = static_cast<uint32_t>(place);
  }
  void rise(size_t place, const Key& key) {
    for (; place > 0 && key < keys_[(place - 1) / 2]; place = (place - 1) / 2)
      put(place, keys_[(place - 1) / 2]);
    put(place, key);
  }
  void sink(size_t place, const Key& key) {
    for (size_t child = 2 * place + 1; child < keys_.size(); child = 2 * place + 1) {
      if (child + 1 < keys_.size() && keys_[child + 1] < keys_[child]) ++child;
      if (key < keys_[child]) break;
      put(std::exchange(place, child), keys_[child]);
    }
    put(place, key);
  }

  std::vector<Key> keys_;
  std::vector<uint32_t> places_;  // by block
};

}  // namespace quire::control
