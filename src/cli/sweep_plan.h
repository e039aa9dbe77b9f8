#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/config.h"

// What `quire calibrate` measures, worked out before it does.
namespace quire::cli {

/// Some requests, and what they do beside others.
struct SweepPiece {
  uint32_t decoding = 0;  // sequences that decode
  uint32_t context = 0;   // tokens that each of these has before
  uint32_t prompts = 0;   // distinct ones among them; the others are further answers to these, with their K/V
  uint32_t steps = 0;     // of decoding
  uint32_t chunk = 0;     // a prompt of so many tokens that joins them; 0: none
  uint32_t chunks = 0;    // how often one does
  bool swaps = false;     // the pool is too small for all, so some are preempted and moved to the host

  bool operator==(const SweepPiece&) const = default;
};

/// All pieces, which are done once a round, and what a user should know of them.
struct SweepPlan {
  std::vector<SweepPiece> pieces;
  std::string summary;             // what is measured, in a line
  std::vector<std::string> notes;  // what is left out or made smaller: why, and what would do
  double round_seconds = 0;        // how long a round takes, about
};

/// A plan for an engine of this configuration, whose `costs` are those of the device, that shall take
/// `seconds`. Contexts are as long as the pool holds them for so many sequences, and each sequence has a
/// prompt of its own as far as the pool has room for that and a round leaves time for others: K/V that is
/// shared is found in a processor's caches, and no count of a step tells that. If `may_shorten`, sequences
/// have at most kUsualLongest tokens, and fewer, down to kShortEnough, if a round would take longer than
/// `seconds`. Swaps are left out if nothing is swapped, the pool cannot be filled, or filling it takes too
/// long. Pure. Throws Error that says what would do if sequences are too short to measure, or the pool too
/// small for any.
SweepPlan plan_sweep(const control::SchedulerConfig& config, double seconds, bool may_shorten);

/// The blocks that a plan for sequences of `longest` tokens uses where the pool limits nothing but how many
/// prompts there are: room for `own_tokens` of prompts that are not shared, or for less where such a pool
/// could not be filled to measure swaps. `config.num_blocks` does not count.
uint64_t blocks_for_sweep(control::SchedulerConfig config, uint32_t longest, uint64_t own_tokens);

inline constexpr uint32_t kLeastLength = 64;     // of the longest sequence
inline constexpr uint32_t kShortEnough = 1024;   // no plan shortens sequences below
inline constexpr uint32_t kUsualLongest = 8192;  // of a sequence, unless the user says otherwise

}  // namespace quire::cli
