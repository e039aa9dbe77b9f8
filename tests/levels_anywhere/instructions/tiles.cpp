#include "tests/levels_anywhere/instructions/tiles.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <immintrin.h>

// After Intel's Software Developer's Manual: volume 1, chapter 18 for the configuration, volume 2 for the
// instructions and their exceptions (AMX-E1 to AMX-E4). Palette 1: eight tiles of 16 rows of 64 bytes.
namespace {

constexpr size_t kTiles = 8;
constexpr size_t kRows = 16;
constexpr size_t kRowBytes = 64;

struct Tile {
  size_t rows = 0;
  size_t row_bytes = 0;
  alignas(64) std::byte bytes[kRows][kRowBytes] = {};
};

struct Config {  // as LDTILECFG reads it
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(Config) == 64);

thread_local Tile tiles[kTiles];

void require(bool well, const char* instruction, const char* what) {
  if (well) return;
  std::fprintf(stderr, "%s: %s\n", instruction, what);
  std::abort();
}

Tile& configured(int index, const char* instruction) {
  require(index >= 0 && static_cast<size_t>(index) < kTiles, instruction, "there is no such tile");
  Tile& tile = tiles[index];
  require(tile.rows != 0, instruction, "the tile is not configured");
  return tile;
}

void clear(Tile& tile) { std::memset(tile.bytes, 0, sizeof(tile.bytes)); }

struct Operands {
  Tile& sum;
  const Tile& a;
  const Tile& b;
};

Operands operands(int sum, int a, int b, const char* instruction) {
  require(sum != a && sum != b && a != b, instruction, "two of the tiles are the same");
  const Operands of = {configured(sum, instruction), configured(a, instruction), configured(b, instruction)};
  require(of.sum.row_bytes % 4 == 0 && of.a.row_bytes % 4 == 0 && of.b.row_bytes % 4 == 0, instruction,
          "a row ends within four bytes");
  require(of.sum.rows == of.a.rows, instruction, "the sums have other rows than the first factor");
  require(of.sum.row_bytes == of.b.row_bytes, instruction,
          "the sums have other columns than the second factor");
  require(of.a.row_bytes / 4 == of.b.rows, instruction, "the factors do not fit");
  return of;
}

struct Row {
  __m256i low, high;
};
Row load(const std::byte* from) {
  return {_mm256_load_si256(reinterpret_cast<const __m256i*>(from)),
          _mm256_load_si256(reinterpret_cast<const __m256i*>(from + 32))};
}
__m256i pair_at(const Tile& tile, size_t row, size_t k) {
  int32_t four = 0;
  std::memcpy(&four, tile.bytes[row] + k * 4, sizeof(four));
  return _mm256_set1_epi32(four);
}
__m256 even(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
__m256 odd(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}

/// The products of the even elements and those of the odd ones are summed apart, in the order of K, each with
/// one rounding; then both sums are added, and the result to the tile. Not inlined: nothing of it may move to
/// where MXCSR is another.
__attribute__((noinline, noclone)) void multiply_bf16(const Operands& of) {
  for (size_t row = 0; row < of.sum.rows; ++row) {
    __m256 sums[2][2] = {{_mm256_setzero_ps(), _mm256_setzero_ps()},
                         {_mm256_setzero_ps(), _mm256_setzero_ps()}};
    for (size_t k = 0; k < of.b.rows; ++k) {
      const __m256i x = pair_at(of.a, row, k);
      const Row w = load(of.b.bytes[k]);
      sums[0][0] = _mm256_fmadd_ps(even(x), even(w.low), sums[0][0]);
      sums[0][1] = _mm256_fmadd_ps(even(x), even(w.high), sums[0][1]);
      sums[1][0] = _mm256_fmadd_ps(odd(x), odd(w.low), sums[1][0]);
      sums[1][1] = _mm256_fmadd_ps(odd(x), odd(w.high), sums[1][1]);
    }
    auto* to = reinterpret_cast<float*>(of.sum.bytes[row]);
    for (size_t half = 0; half < 2; ++half) {
      const __m256 both = _mm256_add_ps(sums[0][half], sums[1][half]);
      _mm256_store_ps(to + half * 8, _mm256_add_ps(_mm256_load_ps(to + half * 8), both));
    }
  }
}

__m256i products(__m256i x, __m256i w) {
  const __m256i of_even = _mm256_madd_epi16(_mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8),
                                            _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8));
  return _mm256_add_epi32(of_even, _mm256_madd_epi16(_mm256_srai_epi16(x, 8), _mm256_srai_epi16(w, 8)));
}

/// What is behind a row's last byte is zero after an instruction that writes the tile.
void clear_behind(Tile& tile) {
  for (size_t row = 0; row < tile.rows; ++row) {
    std::memset(tile.bytes[row] + tile.row_bytes, 0, kRowBytes - tile.row_bytes);
  }
}

}  // namespace

void _tile_release() {
  for (Tile& tile : tiles) tile = Tile();
}

void _tile_loadconfig(const void* from) {
  constexpr const char* kName = "LDTILECFG";
  Config config;
  std::memcpy(&config, from, sizeof(config));
  _tile_release();
  if (config.palette == 0) return;
  require(config.palette == 1, kName, "there is no such palette");
  require(config.start_row == 0, kName, "a tile would be loaded from another row on");
  for (const uint8_t byte : config.reserved) require(byte == 0, kName, "a reserved byte is not zero");
  for (size_t i = 0; i < 16; ++i) {
    const size_t rows = config.rows[i];
    const size_t row_bytes = config.row_bytes[i];
    require(i < kTiles || (rows == 0 && row_bytes == 0), kName, "a tile is configured that there is not");
    require(rows <= kRows && row_bytes <= kRowBytes, kName, "a tile is too large");
    require((rows == 0) == (row_bytes == 0), kName, "a tile has rows but no columns, or columns but no rows");
    if (i >= kTiles) continue;
    tiles[i].rows = rows;
    tiles[i].row_bytes = row_bytes;
  }
}

void _tile_zero(int tile) { clear(configured(tile, "TILEZERO")); }

void _tile_loadd(int index, const void* base, size_t stride) {
  Tile& tile = configured(index, "TILELOADD");
  clear(tile);
  for (size_t row = 0; row < tile.rows; ++row) {
    std::memcpy(tile.bytes[row], static_cast<const std::byte*>(base) + row * stride, tile.row_bytes);
  }
}

/// The same but for the caches.
void _tile_stream_loadd(int tile, const void* base, size_t stride) { _tile_loadd(tile, base, stride); }

void _tile_stored(int index, void* base, size_t stride) {
  const Tile& tile = configured(index, "TILESTORED");
  for (size_t row = 0; row < tile.rows; ++row) {
    std::memcpy(static_cast<std::byte*>(base) + row * stride, tile.bytes[row], tile.row_bytes);
  }
}

void _tile_dpbssd(int sum, int a, int b) {
  const Operands of = operands(sum, a, b, "TDPBSSD");
  for (size_t row = 0; row < of.sum.rows; ++row) {
    Row sums = load(of.sum.bytes[row]);
    for (size_t k = 0; k < of.b.rows; ++k) {
      const __m256i x = pair_at(of.a, row, k);
      const Row w = load(of.b.bytes[k]);
      sums.low = _mm256_add_epi32(sums.low, products(x, w.low));
      sums.high = _mm256_add_epi32(sums.high, products(x, w.high));
    }
    std::memcpy(of.sum.bytes[row], &sums, kRowBytes);
  }
  clear_behind(of.sum);
}

void _tile_dpbf16ps(int sum, int a, int b) {
  const Operands of = operands(sum, a, b, "TDPBF16PS");
  // Subnormals are zero in all of it, whatever MXCSR says.
  const unsigned before = _mm_getcsr();
  _mm_setcsr(0x9fc0);
  multiply_bf16(of);
  _mm_setcsr(before);
  clear_behind(of.sum);
}
