#pragma once

#include <cstdint>

#include "backend/cuda/kv_tile.h"

namespace quire::backend::cuda {

/// The elements of a row in shared memory: a piece more than it has, so that lanes that read a piece of each
/// row do not meet in a bank.
template <class T, uint32_t kDim>
inline constexpr uint32_t kMemoryRow = kDim + kPiece<T>;

/// A tile of K and V there.
template <class T, uint32_t kDim>
inline constexpr uint32_t kBytesOfStage = 2 * kTileKeys * kMemoryRow<T, kDim> * sizeof(T);

/// The K and V of a sequence's keys, tile after tile, on their way from its blocks to shared memory: while a
/// block of kBlockThreads threads computes with one tile, or so many together, those after it are being
/// copied, each to a stage of its own. The block table is read a tile ahead of the copies that need it. A
/// tile, or so many together, takes one barrier.
///
/// Swizzled, rows of a tile have no gaps: piece p of row r lies where piece p ^ (r % 8) would. Lanes do not
/// meet in a bank either then, and a sector that is copied comes to a sector.
template <class T, uint32_t kDim, uint32_t kBlockThreads, uint32_t kStages, uint32_t kTogether = 1,
          bool kSwizzled = false>
class KvStream {
 public:
  static constexpr uint32_t kRow = kSwizzled ? kDim : kMemoryRow<T, kDim>;  // elements
  static constexpr uint32_t kTile = kTileKeys * kRow;                       // of K, or of V
  static constexpr uint32_t kBytes = kStages * 2 * kTile * sizeof(T);
  /// The elements before it are those that start() fills, or more than those.
  static constexpr uint32_t kFreeFrom = (kStages - 1) * 2 * kTile;
  /// What is being copied while a tile is computed with.
  static constexpr uint32_t kBytesInFlight = (kStages - kTogether) * 2 * kTileKeys * kDim * sizeof(T);
  static_assert(kStages >= 2 * kTogether);

  /// The keys [begin, end); of a tile, those outside are zeros. `head`: the K/V head's K in block 0; `table`:
  /// block numbers from position 0 on; those without such a key are not read.
  __device__ __forceinline__ KvStream(const T* head, const KvBlocks& blocks, const uint32_t* table,
                                      uint32_t begin, uint32_t end)
      : head_(head),
        blocks_(blocks),
        table_(table),
        begin_(begin),
        end_(end),
        tile_(begin / kTileKeys * kTileKeys) {
    const uint32_t first = tile_ + first_key_of_half();
    if (first < end && first + kHalf > begin) block_ = table[first >> block_bits()];
    from_ = (first_key_of_half() & (blocks.block_size - 1)) * kDim;
    if constexpr (kEven) from_ += row_of(0) * kDim + column_of(0);
  }

  /// The first key of the tile that next() gives.
  __device__ __forceinline__ uint32_t tile() const { return tile_; }

  /// Sends the first tiles to `memory`, of kBytes, which all threads have done with.
  __device__ __forceinline__ void start(T* memory) {
    memory_ = memory;
    to_ = first_key_of_half() * kRow;
    if constexpr (kEven) to_ += row_of(0) * kRow + (kSwizzled ? swizzled_column() : column_of(0));
    send<true>(tile_, memory);
    // Unrolled, it leaves the kernels too few registers.
    QUIRE_KEEP_LOOP
    for (uint32_t i = 1; i < kStages - kTogether; ++i) {
      send<false>(tile_ + i * kTileKeys, memory + i * 2 * kTile);
    }
  }

  /// K of the next tile; its V lies kTile elements behind. All threads reach it together, and have done with
  /// the tiles before.
  __device__ __forceinline__ const T* next() {
    wait_for_copies(kStages - 2 * kTogether);
    sync_block();
    const T* keys = memory_ + stage_;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kTogether; ++i) {
      constexpr uint32_t kBack = kTogether * 2 * kTile;
      const uint32_t before = stage_ < kBack ? stage_ + kStages * 2 * kTile - kBack : stage_ - kBack;
      send<false>(tile_ + (kStages - kTogether) * kTileKeys, memory_ + before);
      stage_ = stage_ == kFreeFrom ? 0 : stage_ + 2 * kTile;
      tile_ += kTileKeys;
    }
    return keys;
  }
  /// K of the tile behind one of those that next() gives together.
  __device__ __forceinline__ const T* after(const T* keys) const {
    return keys == memory_ + kFreeFrom ? memory_ : keys + 2 * kTile;
  }

 private:
  // One half of the threads copies one half of a tile, which lies in one block, in pieces.
  static constexpr uint32_t kHalf = kTileKeys / 2;
  static constexpr uint32_t kHalfThreads = kBlockThreads / 2;
  static constexpr uint32_t kRowPieces = kDim / kPiece<T>;
  static constexpr uint32_t kPieces = kHalf * kRowPieces;
  static constexpr uint32_t kTurns = (kPieces + kHalfThreads - 1) / kHalfThreads;
  /// Whether the pieces of a thread lie below each other, so many rows apart.
  static constexpr bool kEven = kPieces % kHalfThreads == 0 && kHalfThreads % kRowPieces == 0;
  static constexpr uint32_t kRowsOfTurn = kHalfThreads / kRowPieces;

  __device__ __forceinline__ static uint32_t first_key_of_half() { return thread_x() / kHalfThreads * kHalf; }
  __device__ __forceinline__ static uint32_t piece_of(uint32_t turn) {
    return turn * kHalfThreads + thread_x() % kHalfThreads;
  }
  /// In the half.
  __device__ __forceinline__ static uint32_t row_of(uint32_t turn) { return piece_of(turn) / kRowPieces; }
  __device__ __forceinline__ static uint32_t column_of(uint32_t turn) {
    return piece_of(turn) % kRowPieces * kPiece<T>;
  }
  /// In shared memory, of all of a thread's pieces.
  __device__ __forceinline__ static uint32_t swizzled_column() {
    static_assert(!kSwizzled || (kEven && kRowsOfTurn % 8 == 0 && kRowPieces % 8 == 0));
    return column_of(0) ^ row_of(0) % 8 * kPiece<T>;
  }
  /// How far the piece lies behind from_ or to_, where rows are `stride` apart.
  __device__ __forceinline__ static uint32_t offset_of(uint32_t turn, uint32_t stride) {
    return kEven ? turn * kRowsOfTurn * stride : row_of(turn) * stride + column_of(turn);
  }

  __device__ __forceinline__ uint32_t block_bits() const { return blocks_.block_size == 32 ? 5 : 4; }

  /// Sends the tile from `tile` on, if there is one, and reads what that behind it needs. Only in the first
  /// are keys before begin_.
  template <bool kFirst>
  __device__ __forceinline__ void send(uint32_t tile, T* stage) {
    if (tile < end_) {
      if (!kFirst && tile + kTileKeys <= end_) {
        send_half<true>(tile, stage, 0);
      } else {
        send_half<false>(tile, stage, kFirst ? begin_ : 0);
      }
      const uint32_t first = tile + kTileKeys + first_key_of_half();
      if (first < end_) block_ = table_[first >> block_bits()];
    }
    commit_copies();
  }

  /// `kWhole`: all keys of the tile are in [begin, end_).
  template <bool kWhole>
  __device__ __forceinline__ void send_half(uint32_t tile, T* stage, uint32_t begin) const {
    const T* keys =
        behind(head_, from_ * uint32_t{sizeof(T)} +
                          uint64_t{block_} * static_cast<uint32_t>(blocks_.block_elements() * sizeof(T)));
    const T* values = behind(keys, static_cast<uint32_t>(blocks_.v_after_k() * sizeof(T)));
    QUIRE_UNROLL
    for (uint32_t turn = 0; turn < kTurns; ++turn) {
      if (!kEven && piece_of(turn) >= kPieces) break;
      T* to = stage + to_ + offset_of(turn, kRow);
      const uint32_t key = tile + first_key_of_half() + row_of(turn);
      if (!kWhole && (key < begin || key >= end_)) {
        ptx::store_shared_128(to, {});
        ptx::store_shared_128(to + kTile, {});
        continue;
      }
      copy_async(to, keys + offset_of(turn, kDim), 16);
      copy_async(to + kTile, values + offset_of(turn, kDim), 16);
    }
  }
  __device__ __forceinline__ static const T* behind(const T* from, uint64_t bytes) {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(from) + bytes);
  }

  const T* head_;
  const KvBlocks& blocks_;
  const uint32_t* table_;
  uint32_t begin_;
  uint32_t end_;
  uint32_t tile_;       // the next to compute with
  uint32_t block_ = 0;  // of the thread's half of the next to be sent
  uint32_t from_;       // where the half lies in block 0, or the thread's first piece of it
  uint32_t to_ = 0;     // the same, in the first stage
  T* memory_ = nullptr;
  uint32_t stage_ = 0;  // where tile_ lies in memory_
};

}  // namespace quire::backend::cuda
