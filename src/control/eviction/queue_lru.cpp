#include <boost/unordered/unordered_flat_map.hpp>

#include "control/eviction/ranked.h"

namespace quire::control {
namespace {

/// The rank is how many waiting sequences have the block's tokens.
class QueueLruEviction final : public RankedEviction {
 public:
  using RankedEviction::RankedEviction;

  bool counts_queue() const override { return true; }
  void want(uint64_t hash, BlockId block, int32_t more) override {
    const auto known = more > 0 ? wanted_.try_emplace(hash).first : wanted_.find(hash);
    if (known == wanted_.end()) return;
    const uint32_t count = known->second += static_cast<uint32_t>(more);
    if (count == 0) wanted_.erase(known);
    if (block != kNoBlock) move(entry(block), 0, count);
  }

 private:
  void used(Entry& entry) override {
    const auto wanted = wanted_.find(entry.of.hash);
    move(entry, 0, wanted == wanted_.end() ? 0 : wanted->second);
  }

  boost::unordered_flat_map<uint64_t, uint32_t> wanted_;  // by hash; never iterated
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_queue_lru(uint32_t num_blocks) {
  return std::make_unique<QueueLruEviction>(num_blocks);
}

}  // namespace quire::control
