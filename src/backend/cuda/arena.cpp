#include "backend/cuda/arena.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace quire::backend::cuda {
namespace {

size_t aligned(size_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }
size_t end_of(const ArenaBuffer& buffer) { return buffer.offset + aligned(buffer.bytes); }

/// The lowest offset with so many bytes in which none of `others` lies. These are sorted by their offsets.
size_t lowest_gap(std::span<const ArenaBuffer* const> others, size_t bytes) {
  size_t offset = 0;
  for (const ArenaBuffer* other : others) {
    if (offset + bytes <= other->offset) break;
    offset = std::max(offset, end_of(*other));
  }
  return offset;
}

}  // namespace

size_t place_buffers(std::span<ArenaBuffer> buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t index) { return buffers[index].bytes; });
  std::vector<const ArenaBuffer*> placed;  // by offset
  size_t size = 0;
  for (const size_t index : order) {
    ArenaBuffer& buffer = buffers[index];
    if (buffer.bytes == 0) continue;
    std::vector<const ArenaBuffer*> beside;
    std::ranges::copy_if(placed, std::back_inserter(beside),
                         [&](const ArenaBuffer* other) { return (other->lives & buffer.lives) != 0; });
    buffer.offset = lowest_gap(beside, aligned(buffer.bytes));
    placed.insert(std::ranges::upper_bound(placed, buffer.offset, {}, &ArenaBuffer::offset), &buffer);
    size = std::max(size, end_of(buffer));
  }
  return size;
}

size_t unshared_bytes(std::span<const ArenaBuffer> buffers) {
  size_t size = 0;
  for (const ArenaBuffer& buffer : buffers) size += aligned(buffer.bytes);
  return size;
}

}  // namespace quire::backend::cuda
