#pragma once

#include "kernels/cpu/x86/amx_results.h"

// What the matmul with tiles multiplies with.
namespace quire::kernels::cpu::amx {

inline constexpr size_t kTileBytes = kTileRows * kTileRowBytes;
inline constexpr size_t kStepBytes = 2 * kTileBytes;  // of a panel: 16 rows of 128 bytes
inline constexpr size_t kRowStride = 128;
inline constexpr size_t kLineBytes = 64;

// Tile registers: 0..3 sums (rows of the first tile x left and right half of the panel, then the second
// tile's, or those of the same rows and a second panel), 4 activations, 6 and 7 weights; 5 for the
// activations of a second tile with other rows. The fewer are in use the better: while the core's other
// hardware thread uses tiles too, there are few registers left to rename them to, and 8 in use take 22 ns a
// product where 7 take 15 (6 if the other thread does not). The intrinsics take numerals alone.

struct Bf16 {
  static constexpr bool kScaled = false;
  static QUIRE_INLINE void first_left() { _tile_dpbf16ps(0, 4, 6); }
  static QUIRE_INLINE void first_right() { _tile_dpbf16ps(1, 4, 7); }
  static QUIRE_INLINE void second_left() { _tile_dpbf16ps(2, 4, 6); }
  static QUIRE_INLINE void second_right() { _tile_dpbf16ps(3, 4, 7); }
  static QUIRE_INLINE void shorter_second() {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
};

struct Int8 {
  static constexpr bool kScaled = true;
  static QUIRE_INLINE void first_left() { _tile_dpbssd(0, 4, 6); }
  static QUIRE_INLINE void first_right() { _tile_dpbssd(1, 4, 7); }
  static QUIRE_INLINE void second_left() { _tile_dpbssd(2, 4, 6); }
  static QUIRE_INLINE void second_right() { _tile_dpbssd(3, 4, 7); }
  static QUIRE_INLINE void shorter_second() {
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
};

template <class Dot>
constexpr size_t steps_of(size_t k) {
  return k * (Dot::kScaled ? sizeof(int8_t) : sizeof(uint16_t)) / kTileRowBytes;
}

/// Tells the machine how many rows the tiles have, where that has changed.
class Shapes {
 public:
  Shapes() = default;
  Shapes(const Shapes&) = delete;
  Shapes& operator=(const Shapes&) = delete;
  ~Shapes() { _tile_release(); }

  void set(const Rows& rows) {
    if (rows.first == first_ && rows.second == second_) return;
    first_ = rows.first;
    second_ = rows.second;
    const size_t of_tile[8] = {first_, first_, second_, second_, first_, second_, kTileRows, kTileRows};
    TileConfig config;
    for (size_t i = 0; i < 8; ++i) {
      config.row_bytes[i] = of_tile[i] == 0 ? 0 : static_cast<uint16_t>(kTileRowBytes);
      config.rows[i] = static_cast<uint8_t>(of_tile[i]);
    }
    finish_writes();
    _tile_loadconfig(&config);
  }

 private:
  size_t first_ = 0;
  size_t second_ = 0;
};

/// Reads whole lines, in their order. The machine then fetches those behind them by itself, sooner than after
/// prefetches.
template <size_t kLines>
QUIRE_INLINE void read_lines(const std::byte* from) {
  QUIRE_UNROLL
  for (size_t i = 0; i < kLines; ++i) {
#ifdef __AVX512F__
    asm volatile("" ::"v"(_mm512_load_si512(from + i * kLineBytes)));
#else  // without the instructions, whose vectors are other types then
    static_cast<void>(*static_cast<const volatile std::byte*>(from + i * kLineBytes));
#endif
  }
}

}  // namespace quire::kernels::cpu::amx
