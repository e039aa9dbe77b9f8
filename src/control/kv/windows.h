#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

// Sliding windows in blocks. The layers of a model form K/V groups (one for most models), each with its own
// block table and window: a token at position p reads the keys in (p - window, p], or all keys up to p if the
// window is 0 (full attention). Blocks behind the window of all future tokens are released.
namespace quire::control {

/// The first block that a token at `position` reads.
constexpr uint32_t first_block(uint32_t window, uint32_t position, uint32_t block_size) {
  return window == 0 || position < window ? 0 : (position - window + 1) / block_size;
}

/// The most blocks that `positions` consecutive positions (at least 1) can touch.
constexpr uint64_t blocks_touched(uint64_t positions, uint32_t block_size) {
  return (positions + block_size - 2) / block_size + 1;
}

/// The most blocks of one group that a sequence of `tokens` tokens holds at once if it computes `chunk`
/// tokens per step. Between steps a table keeps the window of the last computed token, which is one position
/// more than the next token needs, because forks start there.
constexpr uint64_t blocks_held(uint32_t window, uint64_t tokens, uint64_t chunk, uint32_t block_size) {
  const uint64_t all = (tokens + block_size - 1) / block_size;
  return window == 0 ? all : std::min(all, blocks_touched(uint64_t{window} + chunk, block_size));
}

/// The same over all groups.
constexpr uint64_t blocks_held(std::span<const uint32_t> windows, uint64_t tokens, uint64_t chunk,
                               uint32_t block_size) {
  uint64_t sum = 0;
  for (const uint32_t window : windows) sum += blocks_held(window, tokens, chunk, block_size);
  return sum;
}

/// The longest sequence, of at most `limit` tokens, that a pool of `num_blocks` can hold alone.
constexpr uint64_t longest_sequence(std::span<const uint32_t> windows, uint64_t num_blocks,
                                    uint32_t block_size, uint64_t limit) {
  uint64_t fits = 0;
  for (uint64_t too_long = limit + 1; fits + 1 < too_long;) {
    const uint64_t middle = fits + (too_long - fits) / 2;
    (blocks_held(windows, middle, 1, block_size) <= num_blocks ? fits : too_long) = middle;
  }
  return fits;
}

}  // namespace quire::control
