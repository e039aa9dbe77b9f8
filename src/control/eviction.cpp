#include "control/eviction.h"

#include <algorithm>
#include <bit>
#include <list>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace quire {
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
  std::vector<Link> links_;  // a ring of the idle blocks, by block; one more stands between its ends
};

// ---- all other policies ----

/// A block has a rank, and of the idle blocks at the ends of chains that of least rank goes,
/// of equals the one idle for longest. (The index would take an end anyway: but a good one, if a bad block
/// before it were named.) Blocks lie in one of two queues. All calls O(log blocks).
class RankedEviction : public EvictionPolicy {
 public:
  explicit RankedEviction(uint32_t num_blocks) : entries_(num_blocks) {
    while (spare_.size() < num_blocks) spare_.push_back(ends_[0].extract(ends_[0].emplace(0, 0, 0).first));
  }

  void use(const CachedBlock& block) final {
    Entry& entry = withdraw(entries_[block.block]);
    entry.idle = false;
    if (entry.uses++ == 0) {
      entry.of = block;
      ++sizes_[entry.queue];
      if (block.parent != kNoBlock) ++entries_[block.parent].children;
    }
    used(entry);
  }
  void idle(BlockId block) final {
    entries_[block].idle = true;
    entries_[block].order = ++releases_;
    offer(entries_[block]);
  }
  void remove(BlockId block) final {
    const Entry old = std::exchange(withdraw(entries_[block]), Entry{});
    --sizes_[old.queue];
    removed(old);
    if (old.of.parent != kNoBlock && --entries_[old.of.parent].children == 0) offer(entries_[old.of.parent]);
  }
  BlockId victim() override { return first(0); }
  bool empty() const final { return ends_[0].empty() && ends_[1].empty(); }

 protected:
  struct Entry {
    CachedBlock of;
    uint64_t rank = 0;
    uint64_t order = 0;     // of becoming idle
    uint32_t uses = 0;      // 0: not cached
    uint32_t children = 0;  // cached blocks right after it in their chains
    uint32_t queue = 0;
    bool idle = false;
  };

  /// The block was just used, for the first time if `uses` is 1.
  virtual void used(Entry& entry) = 0;
  virtual void removed(const Entry& /*entry*/) {}

  void move(Entry& entry, uint32_t queue, uint64_t rank) {
    withdraw(entry).rank = rank;
    --sizes_[entry.queue];
    ++sizes_[entry.queue = queue];
    offer(entry);
  }
  Entry& entry(BlockId block) { return entries_[block]; }
  uint32_t num_blocks() const { return static_cast<uint32_t>(entries_.size()); }
  uint32_t size(uint32_t queue) const { return sizes_[queue]; }  // with those that are held
  BlockId first(uint32_t queue) const {
    return ends_[queue].empty() ? kNoBlock : std::get<BlockId>(*ends_[queue].begin());
  }

 private:
  using Key = std::tuple<uint64_t, uint64_t, BlockId>;  // rank, order, block
  static Key key(const Entry& entry) { return {entry.rank, entry.order, entry.of.block}; }
  void offer(const Entry& entry) {
    if (!entry.idle || entry.children > 0) return;
    spare_.back().value() = key(entry);
    ends_[entry.queue].insert(std::move(spare_.back()));
    spare_.pop_back();
  }
  Entry& withdraw(Entry& entry) {
    if (entry.idle && entry.children == 0) spare_.push_back(ends_[entry.queue].extract(key(entry)));
    return entry;
  }

  std::vector<Entry> entries_;                   // by block
  std::set<Key> ends_[2];                        // by queue
  std::vector<std::set<Key>::node_type> spare_;  // of blocks in neither, so that idle() allocates nothing
  uint32_t sizes_[2] = {};
  uint64_t releases_ = 0;
};

// ---- by score ----

// Positive numbers as integers that compare like them: 32 bits of exponent, 32 of fraction.
constexpr uint64_t kOne = uint64_t{1} << 32;
constexpr uint64_t fraction(uint64_t x) { return x & (kOne - 1); }

/// 2^x, x with 32 binary places, within 0.3 %: 2^f is about 1 + f - 0.343 f (1 - f) between 0 and 1.
constexpr uint64_t power(uint64_t x) {
  return x - (((fraction(x) * (kOne - fraction(x))) >> 32) * 11239 >> 15);
}

constexpr uint64_t sum(uint64_t a, uint64_t b) {
  if (a > b) std::swap(a, b);
  const uint64_t shift = (b >> 32) - (a >> 32);
  const uint64_t both = kOne + fraction(b) + (a == 0 || shift > 32 ? 0 : (kOne + fraction(a)) >> shift);
  return b - fraction(b) + (both < 2 * kOne ? fraction(both) : both / 2);
}

/// Frequency: score <- score x decay + 1 at each use, halved by one to two uses a block of the pool. Since
/// all decay alike, a use adds 2^(time / half-life) instead, and only what is used is touched.
class LfuEviction final : public RankedEviction {
 public:
  using RankedEviction::RankedEviction;

 private:
  void used(Entry& entry) override { move(entry, 0, sum(entry.rank, power(kOne + (++time_ << shift_)))); }

  const int shift_ = std::countl_zero(num_blocks());  // from uses to half-lives with 32 binary places
  uint64_t time_ = 0;
};

/// GreedyDual-Size (Cao & Irani 1997): the rank is what it costs to compute the block again (all are of one
/// size), above the rank of the last victim at the time of use; with frequency (Cherkasova 1998), so many
/// times that cost as it was used. A token's attention to 32,768 others costs about what the rest of it does.
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

/// The rank is how many waiting sequences have the block's tokens.
class QueueLruEviction final : public RankedEviction {
 public:
  using RankedEviction::RankedEviction;

  bool want(uint64_t hash, BlockId block, int32_t more) override {
    const auto known = more > 0 ? wanted_.try_emplace(hash).first : wanted_.find(hash);
    if (known == wanted_.end()) return true;
    const uint32_t count = known->second += static_cast<uint32_t>(more);
    if (count == 0) wanted_.erase(known);
    if (block != kNoBlock) move(entry(block), 0, count);
    return true;
  }

 private:
  void used(Entry& entry) override {
    const auto wanted = wanted_.find(entry.of.hash);
    move(entry, 0, wanted == wanted_.end() ? 0 : wanted->second);
  }

  std::unordered_map<uint64_t, uint32_t> wanted_;  // by hash; never iterated
};

// ---- by what was evicted ----

/// The hashes of evicted blocks, in the order of that. All calls O(1).
class Ghosts {
 public:
  size_t size() const { return order_.size(); }
  /// True if it is there; then no longer.
  bool take(uint64_t hash) {
    const auto found = places_.find(hash);
    if (found == places_.end()) return false;
    order_.erase(found->second);
    places_.erase(found);
    return true;
  }
  void add(uint64_t hash) {
    take(hash);
    places_[hash] = order_.insert(order_.end(), hash);
  }
  /// The oldest go until at most `count` are left.
  void trim(size_t count) {
    while (size() > count) take(uint64_t{order_.front()});
  }

 private:
  std::list<uint64_t> order_;
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places_;  // never iterated
};

/// ARC (Megiddo & Modha 2003): a queue of blocks used once and one of those used again, both least recently
/// used first, and a target for the size of the first that grows by hits on its ghosts and shrinks by hits on
/// the other's. Held blocks count but cannot go, and what comes in is known only after the eviction.
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

/// S3-FIFO (Yang et al. 2023): a small queue, a tenth of the blocks, that new ones must pass with two hits
/// (or come back from the ghosts) to reach the main one; both first in, first out, but that each hit in the
/// main queue buys another round, up to three. `rank` is the order of coming in, `uses` the hits and 1.
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

std::unique_ptr<EvictionPolicy> make_eviction(EvictionKind kind, uint32_t num_blocks) {
  if (kind == EvictionKind::kLfu) return std::make_unique<LfuEviction>(num_blocks);
  if (kind == EvictionKind::kCost) return std::make_unique<GreedyDualEviction>(num_blocks, 1);
  if (kind == EvictionKind::kGdf) return std::make_unique<GreedyDualEviction>(num_blocks, 1 << 16);
  if (kind == EvictionKind::kArc) return std::make_unique<ArcEviction>(num_blocks);
  if (kind == EvictionKind::kS3Fifo) return std::make_unique<S3FifoEviction>(num_blocks);
  if (kind == EvictionKind::kQueueLru) return std::make_unique<QueueLruEviction>(num_blocks);
  return std::make_unique<LruEviction>(num_blocks);
}

}  // namespace quire
