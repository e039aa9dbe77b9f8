#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

// Buffers that share one allocation as far as they are not needed at the same time. Nothing here knows a
// device.
namespace quire::backend::cuda {

/// The operations in which a buffer must keep what it holds: bit i for the i-th, from the one that writes it
/// to the last that reads it, both included. As a set it can say that a buffer lives several times, or from
/// the end of a loop into its next turn.
using Lives = uint32_t;
inline constexpr Lives kAlways = ~Lives{0};

struct ArenaBuffer {
  std::string_view name;
  size_t bytes = 0;
  Lives lives = kAlways;
  size_t offset = 0;  // in the arena; a multiple of kArenaAlignment
};

inline constexpr size_t kArenaAlignment = 256;  // bytes; what cudaMalloc gives

/// Sets the offsets, such that buffers that live in the same operation share no byte, and returns how many
/// bytes the arena has: never more than unshared_bytes(). Greedy by size: the largest first (of equal ones
/// that which is listed first), each at the lowest offset at which nothing lies that lives with it (Pisarchyk
/// and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, section 5.2, but for the
/// choice of the lowest gap instead of the smallest).
size_t place_buffers(std::span<ArenaBuffer> buffers);

/// What the buffers would take if each had its own place, all at multiples of kArenaAlignment.
size_t unshared_bytes(std::span<const ArenaBuffer> buffers);

}  // namespace quire::backend::cuda
