#include <algorithm>

#include "control/eviction/ghosts.h"
#include "control/eviction/ranked.h"

namespace quire::control {
namespace {

/// ARC (Megiddo & Modha 2003): a queue of blocks used once and one of those used again, both least recently
/// used first, and a target for the size of the first, which grows with hits on its ghosts and shrinks with
/// hits on the other's ghosts. Held blocks count but cannot be evicted, and the new block is known only after
/// the eviction.
class ArcEviction final : public RankedEviction {
 public:
  using RankedEviction::RankedEviction;

  BlockId victim() override {
    const uint32_t queue = size(kOnce) > target_ ? kOnce : kAgain;
    return first(queue) != kNoBlock ? first(queue) : first(1 - queue);
  }

 private:
  static constexpr uint32_t kOnce = 0, kAgain = 1;

  void used(Entry& entry) override {
    const size_t once = ghosts_[kOnce].size();
    const size_t again = ghosts_[kAgain].size();
    if (entry.uses > 1) return move(entry, kAgain, 0);
    if (ghosts_[kOnce].take(entry.of.hash)) {
      target_ = std::min<size_t>(num_blocks(), target_ + std::max<size_t>(again / once, 1));
    } else if (ghosts_[kAgain].take(entry.of.hash)) {
      target_ -= std::min(target_, std::max<size_t>(once / again, 1));
    } else {
      return;
    }
    move(entry, kAgain, 0);
  }
  void removed(const Entry& entry) override {
    ghosts_[entry.queue].add(entry.of.hash);
    ghosts_[kOnce].trim(num_blocks() - size(kOnce));
    ghosts_[kAgain].trim(2 * size_t{num_blocks()} - size(kOnce) - size(kAgain) - ghosts_[kOnce].size());
  }

  Ghosts ghosts_[2];
  size_t target_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_arc(uint32_t num_blocks) {
  return std::make_unique<ArcEviction>(num_blocks);
}

}  // namespace quire::control
