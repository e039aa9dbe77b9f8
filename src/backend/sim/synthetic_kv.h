#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/rng.h"
#include "control/step.h"

namespace quire::backend::sim {

/// The K/V of a device that computes none: for each place of each block, of the device and of the host, which
/// position was written there and a hash of all tokens up to it. So whoever reads a place through a block
/// table sees whether it holds what should be there. Not thread-safe.
class SyntheticKv {
 public:
  struct Place {
    uint32_t position = UINT32_MAX;  // nothing was written
    uint64_t content = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };

  SyntheticKv(uint32_t num_blocks, uint32_t block_size, uint32_t num_host_blocks)
      : block_size_(block_size),
        places_(size_t{num_blocks} * block_size),
        host_places_(size_t{num_host_blocks} * block_size) {}

  /// What is before the first token of a sequence with this salt.
  static uint64_t root(uint64_t salt) { return mix64(salt + 1); }
  /// The content of a token, `before` being that of the one before it.
  static uint64_t extend(uint64_t before, TokenId token) {
    return mix64(before ^ static_cast<uint64_t>(token));
  }
  /// The layers of each K/V group make other K/V of the same tokens.
  static uint64_t in_group(uint64_t content, uint32_t group) { return content + group; }

  bool has(BlockId block) const { return block < places_.size() / block_size_; }
  /// The place of a position within `block`, which must be there.
  Place& at(BlockId block, uint32_t position) {
    return places_.at(size_t{block} * block_size_ + position % block_size_);
  }
  /// Forgets what a block holds.
  void clear(BlockId block);
  void clear_all();

  /// The plan's moves and copies, in the order that control/step.h gives. What was moved back to the device
  /// is gone from the host. Returns what is wrong, or "".
  std::string move_and_copy(const control::StepPlan& plan);

 private:
  bool copy_block(const std::vector<Place>& from, BlockId source, std::vector<Place>& to, BlockId target);

  uint32_t block_size_;
  std::vector<Place> places_;
  std::vector<Place> host_places_;
};

}  // namespace quire::backend::sim
