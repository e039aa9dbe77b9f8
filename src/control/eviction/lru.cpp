#include <utility>
#include <vector>

#include "control/eviction/eviction.h"

namespace quire::control {
namespace {

/// Least recently used: the block that has been idle for longest. As the blocks of a chain become idle
/// deepest first, children precede their parents. All calls O(1).
class LruEviction final : public EvictionPolicy {
 public:
  explicit LruEviction(uint32_t num_blocks) : links_(num_blocks + 1) {
    links_.back() = {.before = num_blocks, .after = num_blocks};
  }

  void use(const CachedBlock& block) override { remove(block.block); }
  void idle(BlockId block) override {
    const BlockId last = std::exchange(links_.back().before, block);
    links_[block] = {.before = last, .after = static_cast<BlockId>(links_.size() - 1)};
    links_[last].after = block;
  }
  void remove(BlockId block) override {
    const Link old = std::exchange(links_[block], Link());
    if (old.after == kNoBlock) return;
    links_[old.before].after = old.after;
    links_[old.after].before = old.before;
  }
  BlockId victim() override { return empty() ? kNoBlock : links_.back().after; }
  bool empty() const override { return links_.back().after == links_.size() - 1; }

 private:
  struct Link {
    BlockId before = kNoBlock, after = kNoBlock;  // kNoBlock: not idle
  };
  std::vector<Link> links_;  // a ring of the idle blocks, by block; one additional link joins its ends
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru(uint32_t num_blocks) {
  return std::make_unique<LruEviction>(num_blocks);
}

}  // namespace quire::control
