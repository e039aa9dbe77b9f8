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
class EvictionBound final : public SimulationListener {
 public:
  /// `simulation` must outlive it and be told to listen(). REQUIRES: one K/V group with full attention.
  explicit EvictionBound(const Simulation& simulation);

  bool wants_prompts() const override { return true; }
  void arrived(const SimulatedRequest& of, std::span<const TokenId> prompt) override;
  void admitted(size_t request) override;
  void admitted_again(size_t request, uint32_t choice, Nanos now) override;
  void finished(const SimulatedRequest& of) override;

  struct Hits {
    uint64_t queried_tokens = 0;
    uint64_t hit_tokens = 0;
  };
  /// With so many blocks.
  Hits best(uint32_t num_blocks) const;

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

  /// The prompt of a request that has arrived.
  struct Prompt {
    uint32_t length = 0;
    std::vector<uint64_t> chain;  // for each full block a hash of all tokens up to it
  };

  const Simulation& simulation_;
  const uint32_t block_size_;
  std::vector<Prompt> prompts_;  // by request
  std::vector<Use> uses_;
};

}  // namespace quire::sim
