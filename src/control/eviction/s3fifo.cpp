#include <algorithm>

#include "control/eviction/ghosts.h"
#include "control/eviction/ranked.h"

namespace quire::control {
namespace {

/// S3-FIFO (Yang et al. 2023): a small queue, a tenth of the blocks, which new blocks must pass with two hits
/// (or return from the ghosts) to reach the main queue. Both are first in, first out, but each hit in the
/// main queue buys another round, up to three. `rank` is the order of entry, `uses` is the number of hits
/// plus 1.
class S3FifoEviction final : public RankedEviction {
 public:
  using RankedEviction::RankedEviction;

  BlockId victim() override {
    for (;;) {
      const bool small = first(kMain) == kNoBlock || size(kSmall) * uint64_t{10} >= num_blocks();
      const BlockId block = small && first(kSmall) != kNoBlock ? first(kSmall) : first(kMain);
      if (block == kNoBlock) return block;
      Entry& oldest = entry(block);
      if (oldest.uses <= (oldest.queue == kSmall ? 2 : 1)) return block;
      oldest.uses = oldest.queue == kSmall ? 1 : oldest.uses - 1;
      move(oldest, kMain, ++entered_);
    }
  }

 private:
  static constexpr uint32_t kSmall = 0, kMain = 1;

  void used(Entry& entry) override {
    entry.uses = std::min(entry.uses, 4U);
    if (entry.uses == 1) move(entry, ghosts_.take(entry.of.hash) ? kMain : kSmall, ++entered_);
  }
  void removed(const Entry& entry) override {
    if (entry.queue == kSmall) ghosts_.add(entry.of.hash);
    ghosts_.trim(num_blocks() - num_blocks() / 10);
  }

  Ghosts ghosts_;
  uint64_t entered_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_s3fifo(uint32_t num_blocks) {
  return std::make_unique<S3FifoEviction>(num_blocks);
}

}  // namespace quire::control
