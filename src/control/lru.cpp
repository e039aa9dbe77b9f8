#include <vector>

#include "control/eviction.h"

namespace quire {
namespace {

/// A circular doubly linked list through an array; the element after the last block is its head.
class LruEviction final : public EvictionPolicy {
 public:
  explicit LruEviction(uint32_t num_blocks) : head_(num_blocks), links_(size_t{num_blocks} + 1) {
    links_[head_] = {head_, head_};
  }

  void use(const CachedBlock& block) override { remove(block.block); }

  void idle(BlockId block) override {
    const uint32_t last = links_[head_].previous;
    links_[block] = {last, head_};
    links_[last].next = block;
    links_[head_].previous = block;
  }

  void remove(BlockId block) override {
    Link& link = links_[block];
    if (link.next == kNoBlock) return;
    links_[link.previous].next = link.next;
    links_[link.next].previous = link.previous;
    link = {};
  }

  BlockId victim() const override {
    const uint32_t first = links_[head_].next;
    return first == head_ ? kNoBlock : first;
  }

 private:
  struct Link {
    uint32_t previous = kNoBlock;
    uint32_t next = kNoBlock;  // kNoBlock: not in the list
  };

  uint32_t head_;
  std::vector<Link> links_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru_eviction(uint32_t num_blocks) {
  return std::make_unique<LruEviction>(num_blocks);
}

}  // namespace quire
