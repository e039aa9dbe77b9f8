#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "sim/simulation.h"
#include "sim/simulation_listener.h"

namespace quire::sim {

/// How much of the prompts an eviction policy that knows the future would hit: Belady's MIN (IBM Systems
/// Journal 5(2), 1966) on the sequence of blocks that the requests looked up and computed, in the order in
/// which the simulation admitted them, with the right not to keep a block at all. A block counts as hit
/// wherever in its prompt it is, and running sequences hold none, so no policy hits more with this pool and
/// this order. Needs 16 bytes for each full block of all prompts.
///
/// A hit saves the more work the later in its prompt it is: a token's attention to kAttention tokens before
/// it is taken to be as much work as the rest of it, as by the eviction policies that know of costs. The
/// bound on that work adds up, for depths that rise by an eighth, the most hits of blocks at least so deep
/// (again MIN) times what such a block saves more than the ones before it. No policy saves more, but the best
/// saves less.
class EvictionBound final : public SimulationListener {
 public:
  /// `simulation` must outlive it and be told to listen(). REQUIRES: one K/V group with full attention.
  explicit EvictionBound(const Simulation& simulation);

  bool wants_prompts() const override { return true; }
  void arrived(const SimulatedRequest& of, std::span<const TokenId> prompt) override;
  void admitted(size_t request) override;
  void admitted_again(size_t request, uint32_t choice, Nanos now) override;
  void finished(const SimulatedRequest& of) override;

  static constexpr uint64_t kAttention = 32768;

  /// Tokens of prompts that would be hit with so many blocks.
  uint64_t best_tokens(uint32_t num_blocks) const { return best(num_blocks, next_uses(), 0) * block_size_; }

  /// In tokens at the beginning of a prompt; of the requests that have finished.
  struct Work {
    double prompts = 0;
    double saved = 0;     // by the hits that there were
    double saveable = 0;  // at most, with so many blocks
  };
  Work work(uint32_t num_blocks) const;

 private:
  /// A use of the blocks [begin, end) of a request's prompt, at one moment.
  struct Use {
    uint32_t request = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
    bool is_lookup = false;  // what is found counts
  };
  void use(size_t request, bool is_lookup);
  std::vector<uint32_t> next_uses() const;
  /// The most hits of blocks at this depth or deeper, counted in blocks; `next`: of next_uses().
  uint64_t best(uint32_t num_blocks, const std::vector<uint32_t>& next, uint32_t least_depth) const;

  /// The prompt of a request that has arrived.
  struct Prompt {
    uint32_t length = 0;
    std::vector<uint64_t> chain;  // for each full block a hash of all tokens up to it
  };

  const Simulation& simulation_;
  const uint32_t block_size_;
  std::vector<Prompt> prompts_;  // by request
  std::vector<Use> uses_;
  double prompts_work_ = 0;
  double saved_work_ = 0;
};

}  // namespace quire::sim
