#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "tensor/dtype.h"
#include "tensor/weight_format.h"

// The functions that one ISA level implements: single-threaded pieces of the ops. The drivers in
// kernels/*.cpp divide an op into pieces, distribute them to the threads and call these functions. Files
// compiled for an ISA include only this header and their own headers, and every function template in them has
// a type of that ISA among its arguments: otherwise the linker might keep a copy of a shared inline function
// that only some machines can run.
namespace quire::kernels::cpu {

/// The number of outputs in a panel of PackedMatrix.
inline constexpr size_t kPanelWidth = 32;
/// The number of keys in a tile of KvLayout, and how many elements of K or V a lane of it has side by side.
inline constexpr uint32_t kTileKeys = 16;
inline constexpr uint32_t kInt8KeyStep = 4;  // see KvLayout::fits
constexpr uint32_t value_step(DType dtype) { return dtype == DType::kBF16 ? 2 : 1; }
constexpr uint32_t key_step(DType dtype) { return dtype == DType::kI8 ? kInt8KeyStep : value_step(dtype); }
/// A stretch of keys, from a multiple of its length on, is processed by the softmax of attention together.
inline constexpr uint32_t kStretchTiles = 4;
inline constexpr uint32_t kStretchKeys = kStretchTiles * kTileKeys;
/// Query rows of a K/V head, as in a decode, for which several heads may be computed together: reading K and
/// V takes longer than arithmetic.
inline constexpr size_t kFewRows = 8;
/// A span of keys, from a multiple of its length on, is processed by attention separately. The results of the
/// spans are merged in ascending order, whether one thread processes all of them or several do.
inline constexpr uint32_t kSpanKeys = 1024;

/// K is padded with zeros to a multiple of this in a panel and in the rows of x.
constexpr size_t padded_k(WeightFormat format, size_t k) {
  size_t unit = format == WeightFormat::kBF16 ? 32 : is_integer(format) ? 64 : 1;
  if (is_ggml(format)) unit = ggml_block(format).values;
  return (k + unit - 1) / unit * unit;
}

/// Bytes of 32 inputs of an int4 panel: 32 scales (int8, one per output), then for each pair of steps of four
/// inputs [32 outputs][4] bytes; the lower half of a byte is the weight of the first step + 8, the upper half
/// that of the second.
inline constexpr size_t kInt4GroupBytes = kPanelWidth + kPanelWidth * 32 / 2;

/// The layout of ggml's quantization blocks of 32 outputs in a panel: a header of f16 scales, [32] of each
/// kind, then for each kBlockInputs inputs the small scales of the groups, [32] bytes of each kind, and the
/// integers, all >= 0: as bytes [8][32 outputs][4], or as nibbles in pairs of such steps as in int4. A weight
/// is scale * (integer - zero), in Q4_K scale * integer - minimum.
///   Q8_0, Q4_0: header d      Q4_K: header d, dmin; scales, minima (6 bits)      Q6_K: header d; two of int8
struct BlockLayout {
  size_t inputs;        // under one header
  size_t header_bytes;  // a multiple of 64; so are the others
  size_t scale_bytes;   // of kBlockInputs inputs
  size_t group;         // inputs under one scale
  bool nibbles;
  int zero;  // 0: there are minima instead

  constexpr size_t block_bytes() const;  // bytes of kBlockInputs inputs, without a header
  constexpr size_t bytes() const;        // bytes of a header and its inputs
};
inline constexpr size_t kBlockInputs = 32;

constexpr size_t BlockLayout::block_bytes() const {
  return scale_bytes + kPanelWidth * kBlockInputs / (nibbles ? 2 : 1);
}
constexpr size_t BlockLayout::bytes() const { return header_bytes + inputs / kBlockInputs * block_bytes(); }

constexpr BlockLayout block_layout(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return {.inputs = 32, .header_bytes = 64, .scale_bytes = 0, .group = 32, .nibbles = false, .zero = 128};
    case WeightFormat::kQ4_0:
      return {.inputs = 32, .header_bytes = 64, .scale_bytes = 0, .group = 32, .nibbles = true, .zero = 8};
    case WeightFormat::kQ4_K:
      return {.inputs = 256, .header_bytes = 128, .scale_bytes = 64, .group = 32, .nibbles = true, .zero = 0};
    default:
      return {
          .inputs = 256, .header_bytes = 64, .scale_bytes = 64, .group = 16, .nibbles = false, .zero = 32};
  }
}

/// Layout of a panel of 32 outputs, by format (K: the padded k):
///   f32, f16: [K][32]   bf16: [K / 2][32][2]   int8: [K / 4][32][4]   int4: [K / 32][kInt4GroupBytes]
///   ggml's: see BlockLayout
constexpr size_t panel_bytes(WeightFormat format, size_t k) {
  switch (format) {
    case WeightFormat::kF32:
      return k * kPanelWidth * 4;
    case WeightFormat::kF16:
      return k * kPanelWidth * 2;
    case WeightFormat::kBF16:
      return padded_k(format, k) * kPanelWidth * 2;
    case WeightFormat::kInt8:
      return padded_k(format, k) * kPanelWidth;
    case WeightFormat::kInt4:
      return padded_k(format, k) / 32 * kInt4GroupBytes;
    default:
      return padded_k(format, k) / ggml_block(format).values * block_layout(format).bytes();
  }
}

/// The form of the rows of x for a matmul. "Rows": one after another, ldx elements apart, or interleaved, see
/// MatmulKernel. "Tiles": 16 rows each (the last tile has the remaining ones), [tile][K / step][rows of the
/// tile][64 bytes].
enum class RowForm : uint8_t {
  kF32,      // rows
  kRounded,  // rows of f32, rounded to bf16
  kBF16,     // rows
  kBF16Tiles,
  kInt8,   // rows
  kUint8,  // rows of int8 + 128
  kInt8Tiles,
  kInt8Sums,  // rows of int8, behind each int32 [K / group]: the sums of groups times BlockLayout's -zero, or
              // 1
};
/// The rows of a tile of RowForm, and the bytes of one of its rows.
inline constexpr size_t kTileRows = 16;
inline constexpr size_t kTileRowBytes = 64;
/// The most rows of an interleaved tile (see MatmulKernel).
inline constexpr size_t kMostInterleavedRows = 16;

/// The arguments of a matmul over packed panels; a piece also gets its range of panels, [first, last).
struct MatmulArgs {
  const std::byte* panels = nullptr;
  size_t panel_bytes = 0;
  size_t n = 0;
  size_t k = 0;             // padded
  const void* x = nullptr;  // [m, k] in the RowForm of the level
  size_t ldx = 0;           // in elements; unused for tiles of 16 rows
  size_t m = 0;
  float* y = nullptr;
  size_t ldy = 0;
  const float* bias = nullptr;       // or null
  const float* x_scales = nullptr;   // [m], for integer formats
  const float* w_scales = nullptr;   // [n rounded up to 32], int8 and int4
  const int32_t* offsets = nullptr;  // 128 times the sums of the weights, [n rounded up to 32]
  std::byte* scratch = nullptr;      // int4 and ggml formats: memory of this thread
  float* sums = nullptr;             // tiles: see tile_sums_bytes
  size_t waiting_panels = 0;         // for which there is room in `sums`
};

/// For ggml formats, the inputs that are expanded at a time, and the bytes that kBlockInputs expanded inputs
/// may take.
inline constexpr size_t kBlockChunk = 512;
inline constexpr size_t kExpandedBytes = kPanelWidth * (kBlockInputs + 2 * sizeof(float));
/// How many rows are multiplied with the panels together, so that they stay in L2.
constexpr size_t block_rows(size_t m, size_t k) {
  constexpr size_t kFewest = 48;
  const size_t fit = (size_t{1} << 20) / (k + 1);
  const size_t most = fit < kFewest ? kFewest : fit;
  const size_t blocks = (m + most - 1) / most;
  return (m + blocks - 1) / blocks;  // all of nearly the same height
}

/// The bytes of MatmulArgs::scratch that a thread needs: for int4 a panel as int8; for ggml formats the sums
/// of a panel's outputs and an expanded stretch of the panel.
constexpr size_t scratch_bytes(WeightFormat format, size_t m, size_t k) {
  if (format == WeightFormat::kInt4) return padded_k(format, k) * kPanelWidth;
  if (!is_ggml(format)) return 0;
  return block_rows(m, k) * kPanelWidth * sizeof(float) + kBlockChunk / kBlockInputs * kExpandedBytes;
}

/// How tiles go through a matmul: so many rows at a time, and of K so many steps, which are kTileRowBytes of
/// a row. While panels pass, that stays in L2.
struct TileBlocks {
  size_t rows;
  size_t steps;
};
constexpr size_t tile_pairs(size_t rows) { return (rows + 2 * kTileRows - 1) / (2 * kTileRows); }
inline constexpr size_t kTileBlockBytes = 1 << 20;
/// The largest block of a matmul that is cut. `rows` depends on `steps` alone.
constexpr TileBlocks largest_tile_block(size_t steps) {
  constexpr size_t kMostSteps = 64;  // of a K that is not cut
  constexpr size_t kCutSteps = 32;
  const size_t chunk = steps > kMostSteps ? kCutSteps : steps;
  return {kTileBlockBytes / (chunk * kTileRowBytes), chunk};
}
/// Blocks of m rows, of nearly the same height.
constexpr TileBlocks tile_blocks(size_t m, size_t steps) {
  if (m <= 2 * kTileRows || m * steps * kTileRowBytes <= kTileBlockBytes) return {m, steps};
  const TileBlocks largest = largest_tile_block(steps);
  const size_t blocks = (m + largest.rows - 1) / largest.rows;
  return {tile_pairs((m + blocks - 1) / blocks) * 2 * kTileRows, largest.steps};
}
/// The most panels whose sums wait while K is cut. The more they are, the less often the rows are read again.
inline constexpr size_t kMostWaitingPanels = 32;
/// The bytes of MatmulArgs::sums: [waiting panels][pairs of row tiles][2 * kTileRows][kPanelWidth]. Never
/// less for more rows.
constexpr size_t tile_sums_bytes(size_t m, size_t steps, size_t waiting_panels) {
  const bool is_cut = tile_blocks(m, steps).steps < steps;
  const size_t most = steps == 0 ? m : largest_tile_block(steps).rows;
  const size_t pairs = tile_pairs(m < most ? m : most);
  return pairs * 2 * kTileRows * kPanelWidth * sizeof(float) * (is_cut ? waiting_panels : 1);
}

using MatmulPieces = void (*)(const MatmulArgs& args, size_t first_panel, size_t last_panel);

/// The first of m rows in tile `index` of `tiles` tiles of nearly equal height; the tile ends before the
/// first row of the next.
constexpr size_t first_row(size_t index, size_t tiles, size_t m) { return index * m / tiles; }

struct MatmulKernel {
  MatmulPieces run;
  RowForm rows;
  /// Returns the number of tiles (see first_row) for m rows. The rows of a tile are interleaved, so that it
  /// reads one stream: [K / step][rows of the tile][step], with ldx elements per row in total; a step is 8
  /// bytes for kRounded and 4 for the others. Null: rows are stored one after another.
  size_t (*row_tiles)(size_t m) = nullptr;
  /// For fewer rows than these, `few` takes less time. All results are the same.
  size_t least_rows = 0;
  const MatmulKernel* few = nullptr;
};

/// Attention of consecutive tokens of one sequence for the query heads of some K/V heads. The K/V has the
/// layout of KvLayout.
struct AttentionArgs {
  const std::byte* cache = nullptr;
  const BlockId* block_table = nullptr;
  size_t block_bytes = 0;
  uint32_t block_size = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t kv_head = 0;
  uint32_t num_heads = 1;  // K/V heads from kv_head on
  uint32_t group = 0;      // query heads of each
  uint32_t num_tokens = 0;
  uint32_t first_position = 0;
  uint32_t window = 0;
  float scale = 0.0F;
  float soft_cap = 0.0F;     // 0: none
  const float* q = nullptr;  // [num_tokens][num_heads * group * head_dim]
  size_t ldq = 0;
  float* out = nullptr;
  size_t ldo = 0;
  size_t padded_dim = 0;  // head_dim rounded up to a multiple of 16
  // If `partials` is set, only this span is computed, and its results go to `partials` instead of `out`: for
  // each row, the rows of a K/V head one after another, padded_dim numbers, its maximum and its sum,
  // partial_floats(padded_dim) apart. Null: all spans, into `out`.
  uint32_t span = 0;
  float* partials = nullptr;
  // Memory of this thread: attention_scratch_floats(num_heads * num_tokens * group, padded_dim).
  float* scratch = nullptr;
};

using AttentionKernel = void (*)(const AttentionArgs& args);

/// The rows for which there is room in the scratch memory of attention: a tile that begins with any of them.
constexpr size_t attention_rows(size_t rows) { return (rows + 2 * (kTileRows - 1)) / kTileRows * kTileRows; }
constexpr size_t partial_floats(size_t padded_dim) { return padded_dim + 16; }

/// out[i] = the activation of gate[i], times up[i].
using Gated = void (*)(const float* gate, const float* up, float* out, size_t count);

struct KernelTable {
  // [0] f32, [1] f16, [2] bf16: see float_index.
  void (*to_f32[3])(const void* from, float* to, size_t count);
  void (*from_f32[3])(const float* from, void* to, size_t count);  // rounds to nearest even
  MatmulKernel matmul[kNumWeightFormats];
  /// to[i] = the integer nearest to x[i] / scale; returns the scale, which is the largest magnitude / 127, or
  /// NaN if a value is not finite. All levels give the same bits.
  float (*quantize)(const float* x, int8_t* to, size_t count);
  AttentionKernel attention[4];  // see kv_index
  /// Merges the partials of consecutive spans, the rows of one span after those of the other, into args.out;
  /// overwrites the partials. Null: the level does not compute single spans.
  void (*merge_spans)(const AttentionArgs& args, float* partials, size_t num_spans);

  void (*rms_norm)(const float* x, size_t ldx, const float* weight, float eps, float* y, size_t ldy,
                   size_t rows, size_t width);
  void (*add_in_place)(float* y, const float* x, float factor, size_t count);
  void (*scale_in_place)(float* x, float factor, size_t count);
  void (*soft_cap)(float* x, float cap, size_t count);
  Gated swiglu;
  Gated geglu;
  void (*rope)(float* x, size_t ldx, size_t rows, uint32_t num_heads, uint32_t head_dim, uint32_t rotary,
               const float* cos_sin, const uint32_t* positions);
  void (*route)(float* logits, size_t rows, uint32_t num_experts, uint32_t top, bool normalize,
                uint32_t* experts, float* weights);
  void (*combine)(const float* y, size_t ldy, const uint32_t* places, const float* weights, uint32_t top,
                  float* out, size_t ldo, size_t rows, size_t width);
};

}  // namespace quire::kernels::cpu
