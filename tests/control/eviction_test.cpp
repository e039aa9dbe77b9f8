// Every eviction policy against a naive model of it, and a trace on which it visibly differs from LRU.
#include "control/eviction/eviction.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/control/driver.h"

namespace quire::control {
namespace {

using testing::ElementsAre;

// ---- naive models: a list of blocks, searched in full ----

struct Known {
  CachedBlock of;
  bool idle = false;
  uint64_t idle_since = 0;
  uint64_t came = 0;           // S3-FIFO: when it entered its queue
  std::vector<uint64_t> used;  // at which uses of the whole run
  double credit = 0;           // GreedyDual's H
  bool second = false;         // ARC: T2; S3-FIFO: main
  int hits = 0;                // S3-FIFO
};

/// What any policy is told, written down; how it decides is in the models below.
class Model {
 public:
  explicit Model(uint32_t num_blocks) : num_blocks_(num_blocks) {}
  virtual ~Model() = default;

  void use(const CachedBlock& block) {
    const bool is_new = !blocks_.contains(block.block);
    Known& known = blocks_[block.block];
    known.of = block;
    known.idle = false;
    known.used.push_back(++time_);
    on_use(known, is_new);
  }
  void idle(BlockId block) {
    blocks_.at(block).idle = true;
    blocks_.at(block).idle_since = ++time_idle_;
  }
  void remove(BlockId block) {
    const Known old = blocks_.at(block);
    blocks_.erase(block);
    on_remove(old);
  }
  virtual void want(uint64_t hash, int32_t more) { wanted_[hash] += more; }
  /// Those that may go next; several if the model does not say which.
  virtual std::set<BlockId> victims() = 0;

 protected:
  virtual void on_use(Known& /*known*/, bool /*is_new*/) {}
  virtual void on_remove(const Known& /*known*/) {}

  /// Idle and before no other block.
  std::vector<Known*> ends() {
    std::vector<Known*> found;
    for (auto& [block, known] : blocks_) {
      const bool parent = std::any_of(blocks_.begin(), blocks_.end(),
                                      [&](const auto& other) { return other.second.of.parent == block; });
      if (known.idle && !parent) found.push_back(&known);
    }
    return found;
  }
  size_t count(bool second) const {
    return static_cast<size_t>(std::count_if(
        blocks_.begin(), blocks_.end(), [&](const auto& known) { return known.second.second == second; }));
  }
  /// Of `among`, the one that `less` puts first.
  static Known* least(const std::vector<Known*>& among,
                      const std::function<bool(const Known&, const Known&)>& less) {
    const auto best = std::ranges::min_element(among, [&](Known* a, Known* b) { return less(*a, *b); });
    return best == among.end() ? nullptr : *best;
  }
  static std::set<BlockId> only(const Known* known) {
    return known == nullptr ? std::set<BlockId>{} : std::set{known->of.block};
  }
  static bool longer_idle(const Known& a, const Known& b) { return a.idle_since < b.idle_since; }

  uint32_t num_blocks_;
  std::map<BlockId, Known> blocks_;
  std::map<uint64_t, int32_t> wanted_;
  uint64_t time_ = 0;
  uint64_t time_idle_ = 0;
};

class NaiveLru : public Model {
 public:
  using Model::Model;
  std::set<BlockId> victims() override { return only(least(ends(), longer_idle)); }
};

/// The score as its definition says; any within a percent of the least will do.
class NaiveLfu : public Model {
 public:
  using Model::Model;
  std::set<BlockId> victims() override {
    double half_life = 1;
    while (half_life <= num_blocks_) half_life *= 2;
    const auto score = [&](const Known& known) {
      double sum = 0;
      for (const uint64_t use : known.used) sum += std::exp2(-static_cast<double>(time_ - use) / half_life);
      return sum;
    };
    const auto all = ends();
    const Known* best = least(all, [&](const Known& a, const Known& b) { return score(a) < score(b); });
    std::set<BlockId> found;
    for (const Known* known : all) {
      if (score(*known) <= score(*best) * 1.01) found.insert(known->of.block);
    }
    return found;
  }
};

class NaiveGreedyDual : public Model {
 public:
  NaiveGreedyDual(uint32_t num_blocks, bool frequency) : Model(num_blocks), frequency_(frequency) {}
  std::set<BlockId> victims() override {
    return only(least(ends(), [](const Known& a, const Known& b) {
      return a.credit != b.credit ? a.credit < b.credit : longer_idle(a, b);
    }));
  }

 private:
  void on_use(Known& known, bool /*is_new*/) override {
    const double cost = 1 + static_cast<double>(known.of.position) / 32768;
    known.credit = inflation_ + cost * (frequency_ ? static_cast<double>(known.used.size()) : 1);
  }
  void on_remove(const Known& known) override { inflation_ = std::max(inflation_, known.credit); }

  bool frequency_;
  double inflation_ = 0;
};

class NaiveQueueLru : public Model {
 public:
  using Model::Model;
  std::set<BlockId> victims() override {
    return only(least(ends(), [&](const Known& a, const Known& b) {
      const int32_t one = wanted_[a.of.hash], other = wanted_[b.of.hash];
      return one != other ? one < other : longer_idle(a, b);
    }));
  }
};

/// B1, B2 oldest first.
class NaiveArc : public Model {
 public:
  using Model::Model;
  std::set<BlockId> victims() override {
    std::vector<Known*> lists[2];
    for (Known* known : ends()) lists[known->second ? 1 : 0].push_back(known);
    const bool second = count(false) <= p_;
    return only(least(lists[lists[second ? 1 : 0].empty() == second ? 0 : 1], longer_idle));
  }
  size_t ghosts() const { return b_[0].size() + b_[1].size(); }

 private:
  void on_use(Known& known, bool is_new) override {
    if (!is_new) {
      known.second = true;
      return;
    }
    const size_t sizes[2] = {b_[0].size(), b_[1].size()};
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const auto ghost = std::ranges::find(b_[i], known.of.hash);
      if (ghost == b_[i].end()) continue;
      b_[i].erase(ghost);
      known.second = true;
      const size_t step = std::max<size_t>(1, sizes[1 - i] / sizes[i]);
      p_ = i == 0 ? std::min<size_t>(p_ + step, num_blocks_) : p_ - std::min(p_, step);
      return;
    }
  }
  void on_remove(const Known& known) override {
    b_[known.second ? 1 : 0].push_back(known.of.hash);
    while (count(false) + b_[0].size() > num_blocks_) b_[0].erase(b_[0].begin());
    while (blocks_.size() + ghosts() > 2 * num_blocks_) b_[1].erase(b_[1].begin());
  }

  std::vector<uint64_t> b_[2];
  size_t p_ = 0;
};

class NaiveS3Fifo : public Model {
 public:
  using Model::Model;
  std::set<BlockId> victims() override {
    const auto first_in = [](const Known& a, const Known& b) { return a.came < b.came; };
    while (true) {
      std::vector<Known*> queues[2];
      for (Known* known : ends()) queues[known->second ? 1 : 0].push_back(known);
      if (queues[0].empty() && queues[1].empty()) return {};
      const bool small = !queues[0].empty() && (10 * count(false) >= num_blocks_ || queues[1].empty());
      Known* oldest = least(queues[small ? 0 : 1], first_in);
      if (small && oldest->hits > 1) {
        oldest->second = true;
        oldest->hits = 0;
      } else if (!small && oldest->hits > 0) {
        --oldest->hits;
      } else {
        return only(oldest);
      }
      oldest->came = ++clock_;
    }
  }

 private:
  void on_use(Known& known, bool is_new) override {
    if (!is_new) {
      known.hits = std::min(known.hits + 1, 3);
      return;
    }
    known.came = ++clock_;
    const auto ghost = std::ranges::find(ghosts_, known.of.hash);
    known.second = ghost != ghosts_.end();
    if (known.second) ghosts_.erase(ghost);
  }
  void on_remove(const Known& known) override {
    if (!known.second) ghosts_.push_back(known.of.hash);
    while (ghosts_.size() > num_blocks_ - num_blocks_ / 10) ghosts_.erase(ghosts_.begin());
  }

  std::vector<uint64_t> ghosts_;
  uint64_t clock_ = 0;
};

std::unique_ptr<Model> make_model(EvictionKind kind, uint32_t num_blocks) {
  switch (kind) {
    case EvictionKind::kLru:
      return std::make_unique<NaiveLru>(num_blocks);
    case EvictionKind::kLfu:
      return std::make_unique<NaiveLfu>(num_blocks);
    case EvictionKind::kCost:
      return std::make_unique<NaiveGreedyDual>(num_blocks, false);
    case EvictionKind::kGdf:
      return std::make_unique<NaiveGreedyDual>(num_blocks, true);
    case EvictionKind::kArc:
      return std::make_unique<NaiveArc>(num_blocks);
    case EvictionKind::kS3Fifo:
      return std::make_unique<NaiveS3Fifo>(num_blocks);
    case EvictionKind::kQueueLru:
      return std::make_unique<NaiveQueueLru>(num_blocks);
  }
  return nullptr;
}

// ---- a small cache of chains, which drives policy and model alike ----

/// Chains spelt as strings: a character is a block. Blocks are taken and held as PrefixCache and its users
/// do.
class Chains {
 public:
  Chains(EvictionKind kind, uint32_t num_blocks)
      : num_blocks_(num_blocks),
        policy_(make_eviction(kind, num_blocks)),
        model_(make_model(kind, num_blocks)) {}

  /// Takes the blocks of all prefixes of `chain`, evicting for those that are not there. Returns how many
  /// were. Without room, as many as fit.
  size_t take(const std::string& chain) {
    size_t hits = 0;
    bool hit = true;
    BlockId parent = kNoBlock;
    std::vector<BlockId>& taken = held_.emplace_back();
    for (size_t length = 1; length <= chain.size(); ++length) {
      const std::string prefix = chain.substr(0, length);
      const auto found = blocks_.find(prefix);
      hit = hit && found != blocks_.end();
      if (hit) ++hits;
      const BlockId block = hit ? found->second : make_room();
      if (block == kNoBlock) return hits;
      if (!hit) blocks_[prefix] = block;
      const CachedBlock known{block, parent, hash(prefix), 512 * (length - 1)};
      policy_->use(known);
      model_->use(known);
      ++holders_[block];
      taken.push_back(block);
      parent = block;
    }
    return hits;
  }
  /// The i-th that was taken and is still held.
  void let_go(size_t i = 0) {
    for (size_t row = held_[i].size(); row-- > 0;) {
      const BlockId block = held_[i][row];
      if (--holders_[block] > 0) continue;
      policy_->idle(block);
      model_->idle(block);
    }
    held_.erase(held_.begin() + static_cast<ptrdiff_t>(i));
  }
  size_t num_held() const { return held_.size(); }

  size_t visit(const std::string& chain) {
    const size_t hits = take(chain);
    let_go(held_.size() - 1);
    return hits;
  }
  void want(const std::string& chain, int32_t more) {
    for (size_t length = 1; length <= chain.size(); ++length) {
      const std::string prefix = chain.substr(0, length);
      const auto found = blocks_.find(prefix);
      policy_->want(hash(prefix), found == blocks_.end() ? kNoBlock : found->second, more);
      model_->want(hash(prefix), more);
    }
  }
  bool has(const std::string& chain) const { return blocks_.contains(chain); }

  /// Evicts one as the policy says. Returns its chain, empty if none is idle.
  std::string evict() {
    const bool empty = policy_->empty();
    const BlockId block = policy_->victim();
    const std::set<BlockId> expected = model_->victims();
    EXPECT_EQ(block == kNoBlock, expected.empty());
    EXPECT_EQ(block == kNoBlock, empty);
    if (block == kNoBlock) return {};
    EXPECT_TRUE(expected.contains(block));
    const auto found =
        std::ranges::find_if(blocks_, [&](const auto& known) { return known.second == block; });
    std::string name = found->first;
    for (const auto& [other, unused] : blocks_) {
      EXPECT_FALSE(other.size() > name.size() && other.starts_with(name)) << name << " goes before " << other;
    }
    policy_->remove(block);
    model_->remove(block);
    blocks_.erase(found);
    free_.push_back(block);
    return name;
  }

 private:
  static uint64_t hash(const std::string& chain) {
    uint64_t hash = 0;
    for (const char c : chain) hash = mix64(hash + static_cast<uint8_t>(c));
    return hash;
  }
  BlockId make_room() {
    if (made_ < num_blocks_) return made_++;
    if (free_.empty() && evict().empty()) return kNoBlock;
    const BlockId block = free_.back();
    free_.pop_back();
    return block;
  }

  uint32_t num_blocks_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::unique_ptr<Model> model_;
  std::map<std::string, BlockId> blocks_;
  std::map<BlockId, uint32_t> holders_;
  std::vector<std::vector<BlockId>> held_;
  std::vector<BlockId> free_;
  BlockId made_ = 0;
};

class EvictionTest : public testing::TestWithParam<EvictionKind> {};

INSTANTIATE_TEST_SUITE_P(Policies, EvictionTest, testing::ValuesIn(kEvictionKinds), [](const auto& test) {
  std::string text(name(test.param));
  std::erase(text, '-');
  return text;
});

TEST_P(EvictionTest, DecidesAsItsNaiveModel) {
  size_t evictions = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SplitMix64 random(seed);
    Chains chains(GetParam(), 3 + static_cast<uint32_t>(random.below(40)));
    const uint64_t width = 1 + random.below(5);
    std::vector<std::string> waiting;
    const auto chain = [&] {
      std::string text;
      const uint64_t length = 1 + random.below(6);
      for (uint64_t i = 0; i < length; ++i) {  // low letters are frequent
        text += static_cast<char>('a' + std::min(random.below(width), random.below(width)));
      }
      text[0] = static_cast<char>(text[0] + 3 * (random.below(4) * random.below(2)));
      return text;
    };
    for (int i = 0; i < 300; ++i) {
      const uint64_t dice = random.below(10);
      if (dice < 4) {
        chains.take(chain());
      } else if (dice < 7) {
        if (chains.num_held() > 0) chains.let_go(random.below(chains.num_held()));
      } else if (dice == 7) {
        evictions += chains.evict().empty() ? 0 : 1;
      } else if (dice == 8) {
        waiting.push_back(chain());
        chains.want(waiting.back(), 1);
      } else if (!waiting.empty()) {
        chains.want(waiting.back(), -1);
        waiting.pop_back();
      }
      ASSERT_FALSE(HasFailure()) << "seed " << seed << ", operation " << i;
    }
    while (chains.num_held() > 0) chains.let_go();
    while (!chains.evict().empty()) ++evictions;
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(evictions, 1000U);
}

// ---- where they differ ----

std::vector<std::string> order(Chains& chains) {
  std::vector<std::string> gone;
  for (std::string one = chains.evict(); !one.empty(); one = chains.evict()) gone.push_back(one);
  return gone;
}

/// The chains in turn under that policy; then the order in which their blocks go.
std::vector<std::string> order(EvictionKind kind, const std::vector<std::string>& visits,
                               uint32_t num_blocks = 16) {
  Chains chains(kind, num_blocks);
  for (const std::string& chain : visits) chains.visit(chain);
  return order(chains);
}

TEST(Eviction, LruLosesTheLongestIdleFromItsEnd) {
  EXPECT_THAT(order(EvictionKind::kLru, {"ab", "c", "ad"}), ElementsAre("ab", "c", "ad", "a"));
}

TEST(Eviction, LfuKeepsWhatWasUsedOftenThoughLongerAgo) {
  const std::vector<std::string> visits = {"a", "a", "a", "b"};
  EXPECT_THAT(order(EvictionKind::kLru, visits), ElementsAre("a", "b"));
  EXPECT_THAT(order(EvictionKind::kLfu, visits), ElementsAre("b", "a"));
}

TEST(Eviction, LfuForgetsOldFame) {
  // A pool of 4 halves scores every 8 uses: three uses of `a` fade to less than the one of `c`.
  Chains chains(EvictionKind::kLfu, 4);
  for (const char* chain : {"a", "a", "a"}) chains.visit(chain);
  for (int i = 0; i < 100; ++i) chains.visit("b");
  chains.visit("c");
  EXPECT_EQ(chains.evict(), "a");
}

TEST(Eviction, CostKeepsWhatTakesLongToCompute) {
  // Both used once, the chain before the other block; a token at position 2,048 costs 1/16 more.
  const std::vector<std::string> visits = {"abcde", "x"};
  EXPECT_THAT(order(EvictionKind::kLru, visits), ElementsAre("abcde", "abcd", "abc", "ab", "a", "x"));
  EXPECT_THAT(order(EvictionKind::kCost, visits), ElementsAre("x", "abcde", "abcd", "abc", "ab", "a"));
}

TEST(Eviction, CostAgesWhatIsNotUsed) {
  Chains chains(EvictionKind::kCost, 6);
  chains.visit("abcde");
  std::vector<std::string> gone;
  for (char c = 'm'; chains.has("abcde") && c <= 'z'; ++c) chains.visit(std::string(1, c));
  EXPECT_FALSE(chains.has("abcde"));  // each victim raised what a new block starts with
}

TEST(Eviction, GdfWeighsCostByFrequency) {
  const std::vector<std::string> visits = {"a", "a", "bcd"};
  EXPECT_THAT(order(EvictionKind::kLru, visits), ElementsAre("a", "bcd", "bc", "b"));
  EXPECT_THAT(order(EvictionKind::kCost, visits), ElementsAre("a", "bcd", "bc", "b"));
  EXPECT_THAT(order(EvictionKind::kGdf, visits), ElementsAre("bcd", "bc", "b", "a"));
}

TEST(Eviction, GdfKeepsFameForAWhileAndNotForEver) {
  constexpr size_t kUses = 10;
  Chains chains(EvictionKind::kGdf, 4);
  for (size_t i = 0; i < kUses; ++i) chains.visit("a");
  // Each victim raises what a new block starts with by what one use is worth, for every three blocks beside
  // `a`.
  size_t others = 0;
  for (; chains.has("a") && others < 1000; ++others)
    chains.visit(std::string(1, static_cast<char>('b' + others % 25)));
  EXPECT_GT(others, kUses);
  EXPECT_LT(others, 100 * kUses);
}

TEST(Eviction, AScanPassesThroughArc) {
  for (const auto kind : {EvictionKind::kLru, EvictionKind::kArc, EvictionKind::kS3Fifo}) {
    Chains chains(kind, 10);
    for (const char* chain : {"ab", "ab", "ab"}) chains.visit(chain);
    for (char c = 'm'; c <= 'z'; ++c) chains.visit(std::string(1, c));  // each once
    EXPECT_EQ(chains.visit("ab"), kind == EvictionKind::kLru ? 0U : 2U) << name(kind);
  }
}

TEST(Eviction, ArcLearnsFromItsGhosts) {
  // What was used once goes first, until one of those that went so comes back: then there is room for one.
  Chains chains(EvictionKind::kArc, 4);
  for (const char* chain : {"a", "a", "b", "b", "c", "d"}) chains.visit(chain);
  chains.visit("e");
  EXPECT_FALSE(chains.has("c"));  // though `a` and `b` were idle for longer
  chains.visit("c");
  EXPECT_FALSE(chains.has("d"));
  EXPECT_EQ(chains.evict(), "a");
  EXPECT_TRUE(chains.has("e"));
}

TEST(Eviction, S3FifoLetsBackInWhatItJustEvicted) {
  Chains chains(EvictionKind::kS3Fifo, 10);
  for (char c = 'a'; c <= 'k'; ++c) chains.visit(std::string(1, c));  // `a` went
  EXPECT_FALSE(chains.has("a"));
  chains.visit("a");  // from the ghosts into the main queue
  for (char c = 'm'; c <= 'z'; ++c) chains.visit(std::string(1, c));
  EXPECT_TRUE(chains.has("a"));
  EXPECT_FALSE(chains.has("k"));
}

TEST(Eviction, QueueLruSparesWhatWaitingSequencesWillHit) {
  Chains chains(EvictionKind::kQueueLru, 8);
  chains.want("ab", 1);  // before they are there
  for (const char* chain : {"ab", "c", "d", "e"}) chains.visit(chain);
  chains.want("d", 1);
  chains.want("d", 1);
  EXPECT_EQ(chains.evict(), "c");
  EXPECT_EQ(chains.evict(), "e");
  chains.want("ab", -1);
  EXPECT_EQ(chains.evict(), "ab");
  chains.want("d", -1);
  chains.want("d", -1);
  chains.visit("f");
  EXPECT_THAT(order(chains), ElementsAre("a", "d", "f"));
}

TEST(Eviction, QueueLruKeepsWhatMoreOfThemWant) {
  Chains chains(EvictionKind::kQueueLru, 8);
  for (const char* chain : {"ab", "ac", "x"}) chains.visit(chain);
  for (const char* chain : {"ab", "ac", "ab", "x"}) chains.want(chain, 1);
  EXPECT_THAT(order(chains), ElementsAre("ac", "x", "ab", "a"));
}

// ---- in the scheduler ----

/// Of 12 blocks, `a` and then `b` leave 4 each; `c` needs 6 while `d` waits, which would hit all of `a`. How
/// many tokens are found for `d`, or, if it is aborted before c comes in, for another like it that comes
/// later.
uint32_t found_after(EvictionKind kind, bool aborted) {
  using namespace test;
  SchedulerConfig config = test::with_blocks(12, 32);
  config.max_num_seqs = 1;
  config.eviction = kind;
  test::Driver driver(config);
  driver.add(test::a, test::text(16), 1);
  driver.add(test::b, test::text(16, 100), 1);
  driver.steps(2);
  driver.add(test::c, test::text(24, 500), 1);
  driver.add(test::d, test::text(17), 1);
  if (aborted) driver.scheduler.abort(test::d);
  driver.step();
  if (aborted) driver.add(test::d + 1, test::text(17), 1);
  driver.step();
  EXPECT_EQ(driver.events.size(), 1U);
  return driver.events.empty() ? 0 : driver.events.front().cached_tokens;
}

TEST(Eviction, TheQueueProtectsBlocksUntilItsSequenceIsGone) {
  EXPECT_EQ(found_after(EvictionKind::kLru, false), 8U);
  EXPECT_EQ(found_after(EvictionKind::kQueueLru, false), 16U);
  EXPECT_EQ(found_after(EvictionKind::kQueueLru, true), 8U);
}

}  // namespace
}  // namespace quire::control
