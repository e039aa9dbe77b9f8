#include <array>

#include <boost/unordered/unordered_flat_map.hpp>

#include "control/eviction/ranked.h"

namespace quire::control {
namespace {

/// Counts by hash, those that are not 0. Whatever waits wants each block of its prompt, so there may be
/// millions: an entry has no padding, and the table is in parts, as one that grows is there twice meanwhile.
class WantCounts {
 public:
  uint32_t of(uint64_t hash) const {
    const Part& part = parts_[hash >> 56];
    const auto known = part.find(Halves(hash));
    return known == part.end() ? 0 : known->second;
  }
  /// Returns the new count; 0 stays 0 when it is to be less.
  uint32_t add(uint64_t hash, int32_t more) {
    Part& part = parts_[hash >> 56];
    const auto known = more > 0 ? part.try_emplace(Halves(hash)).first : part.find(Halves(hash));
    if (known == part.end()) return 0;
    const uint32_t count = known->second += static_cast<uint32_t>(more);
    if (count == 0) part.erase(known);
    return count;
  }

 private:
  /// A hash as two numbers of 32 bits, so that an entry is 12 bytes and not 16.
  struct Halves {
    explicit Halves(uint64_t hash)
        : high(static_cast<uint32_t>(hash >> 32)), low(static_cast<uint32_t>(hash)) {}
    friend bool operator==(const Halves&, const Halves&) = default;
    uint32_t high = 0;
    uint32_t low = 0;
  };
  struct Whole {
    size_t operator()(const Halves& hash) const { return uint64_t{hash.high} << 32 | hash.low; }
  };
  using Part = boost::unordered_flat_map<Halves, uint32_t, Whole>;  // never iterated
  std::array<Part, 256> parts_;                                     // by the first byte of the hash
};

/// The rank is how many waiting sequences have the block's tokens.
class QueueLruEviction final : public RankedEviction {
 public:
  using RankedEviction::RankedEviction;

  bool counts_queue() const override { return true; }
  void want(uint64_t hash, BlockId block, int32_t more) override {
    const uint32_t count = wanted_.add(hash, more);
    if (block != kNoBlock) move(entry(block), 0, count);
  }

 private:
  void used(Entry& entry) override {
    if (entry.uses == 1) move(entry, 0, wanted_.of(entry.of.hash));  // else want() has kept it up
  }

  WantCounts wanted_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_queue_lru(uint32_t num_blocks) {
  return std::make_unique<QueueLruEviction>(num_blocks);
}

}  // namespace quire::control
