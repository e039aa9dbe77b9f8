#pragma once

#include <cstdint>

#include "backend/cuda/kv_tile.h"

namespace quire::backend::cuda {

/// The elements of a row in shared memory: a piece more than it has, so that lanes that read a piece of each
/// row do not meet in a bank.
template <class T, uint32_t kDim>
inline constexpr uint32_t kMemoryRow = kDim + kPiece<T>;

/// The K and V of a sequence's keys, tile after tile, on their way from its blocks to shared memory: while a
/// block of kBlockThreads threads computes with one tile, those after it are being copied, each to a stage of
/// its own. The block table is read a tile ahead of the copies that need it. A tile takes one barrier.
template <class T, uint32_t kDim, uint32_t kBlockThreads>
class KvStream {
 public:
  static constexpr uint32_t kTile = kTileKeys * kMemoryRow<T, kDim>;  // elements of K, or of V
  static constexpr uint32_t kStages = kDim <= 96 ? 3 : 2;             // that kUnaskedSharedBytes hold
  static constexpr uint32_t kBytes = kStages * 2 * kTile * sizeof(T);
  /// What is being copied while a tile is computed with.
  static constexpr uint32_t kBytesInFlight = (kStages - 1) * 2 * kTileKeys * kDim * sizeof(T);
  static_assert(kBytes <= kUnaskedSharedBytes);

  /// The keys [begin, end); of a tile, those outside are zeros. `head`: the K/V head's K in block 0; `table`:
  /// block numbers from position 0 on; those without such a key are not read.
  __device__ __forceinline__ KvStream(const T* head, const KvBlocks& blocks, const uint32_t* table,
                                      uint32_t begin, uint32_t end)
      : head_(head), blocks_(blocks), table_(table), begin_(begin), end_(end) {
    tile_ = begin / kTileKeys * kTileKeys;
    read_table();
  }

  /// Sends the first tiles to `memory`, of kBytes, which all threads have done with.
  __device__ __forceinline__ void start(T* memory) {
    memory_ = memory;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kStages - 1; ++i) {
      send(i);
    }
  }

  /// K of the next tile; its V lies kTile elements behind. All threads reach it together, and have done with
  /// the tile before.
  __device__ __forceinline__ const T* next() {
    wait_for_copies(kStages - 2);
    sync_block();
    send(stage_ == 0 ? kStages - 1 : stage_ - 1);
    const T* keys = memory_ + stage_ * (2 * kTile);
    stage_ = stage_ == kStages - 1 ? 0 : stage_ + 1;
    return keys;
  }

 private:
  static constexpr uint32_t kRowPieces = kDim / kPiece<T>;
  static constexpr uint32_t kPieces = kTileKeys * kRowPieces;
  static constexpr uint32_t kHalf = kTileKeys / 2;  // lies in one block

  __device__ __forceinline__ uint32_t block_at(uint32_t first) const {
    return first < end_ && first + kHalf > begin_ ? table_[first >> (blocks_.block_size == 32 ? 5 : 4)] : 0;
  }
  __device__ __forceinline__ void read_table() {
    first_block_ = block_at(tile_);
    second_block_ = block_at(tile_ + kHalf);
  }

  /// Sends tile_, if there is one, and goes on to the tile behind it.
  __device__ __forceinline__ void send(uint32_t stage) {
    if (tile_ < end_) {
      T* stage_memory = memory_ + stage * (2 * kTile);
      QUIRE_UNROLL
      for (uint32_t i = 0; i < (kPieces + kBlockThreads - 1) / kBlockThreads; ++i) {
        const uint32_t piece = i * kBlockThreads + thread_x();
        if (piece >= kPieces) break;
        const uint32_t in_tile = piece / kRowPieces;
        const uint32_t d = piece % kRowPieces * kPiece<T>;
        T* to = stage_memory + in_tile * kMemoryRow<T, kDim> + d;
        const uint32_t key = tile_ + in_tile;
        if (key < begin_ || key >= end_) {
          ptx::store_shared_128(to, {});
          ptx::store_shared_128(to + kTile, {});
          continue;
        }
        const uint32_t block = in_tile < kHalf ? first_block_ : second_block_;
        const T* from =
            head_ + block * blocks_.block_elements() + (key & (blocks_.block_size - 1)) * kDim + d;
        copy_async(to, from, 16);
        copy_async(to + kTile, from + blocks_.v_after_k(), 16);
      }
      tile_ += kTileKeys;
      read_table();
    }
    commit_copies();
  }

  const T* head_;
  const KvBlocks& blocks_;
  const uint32_t* table_;
  uint32_t begin_;
  uint32_t end_;
  T* memory_ = nullptr;
  uint32_t stage_ = 0;  // of the next tile to compute with
  uint32_t tile_;       // the next to be sent, and the blocks of its halves
  uint32_t first_block_;
  uint32_t second_block_;
};

}  // namespace quire::backend::cuda
