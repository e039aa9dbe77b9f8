#include <algorithm>

#include "control/eviction/ranked.h"

namespace quire::control {
namespace {

/// GreedyDual-Size (Cao & Irani 1997): the rank is the cost of computing the block again (all have the same
/// size), plus the rank of the last victim at the time of use; with frequency (Cherkasova 1998), that cost is
/// multiplied by the number of uses. A token's attention to 32,768 others costs about what the rest of it
/// does.
class GreedyDualEviction final : public RankedEviction {
 public:
  GreedyDualEviction(uint32_t num_blocks, uint32_t max_uses) : RankedEviction(num_blocks), max_(max_uses) {}

 private:
  void used(Entry& entry) override {
    move(entry, 0, floor_ + (32768 + entry.of.position) * std::min(entry.uses, max_));
  }
  void removed(const Entry& entry) override { floor_ = std::max(floor_, entry.rank); }

  uint32_t max_;
  uint64_t floor_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_cost(uint32_t num_blocks) {
  return std::make_unique<GreedyDualEviction>(num_blocks, 1);
}
std::unique_ptr<EvictionPolicy> make_gdf(uint32_t num_blocks) {
  return std::make_unique<GreedyDualEviction>(num_blocks, 1 << 16);
}

}  // namespace quire::control
