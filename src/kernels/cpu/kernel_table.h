#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "kernels/weight_format.h"
#include "tensor/dtype.h"

// What one ISA level implements: single-threaded pieces of the ops. The drivers in kernels/*.cpp cut an op
// into pieces, hand them to the threads and call these. Files compiled for an ISA include no more than this
// header and their own, and every function template in them has a type of that ISA among its arguments:
// otherwise the linker might keep the copy of a shared inline function that only some machines can run.
namespace quire::cpu {

/// Outputs side by side in a panel of PackedMatrix.
inline constexpr size_t kPanelWidth = 32;
/// Keys side by side in a K tile of KvLayout.
inline constexpr uint32_t kTileKeys = 16;
/// Keys, from a multiple of it on, that attention goes through by themselves. What the spans give is merged
/// in ascending order, whether one thread goes through all of them or several do.
inline constexpr uint32_t kSpanKeys = 1024;

/// K is padded with zeros to a multiple of this in a panel and in the rows of x.
constexpr size_t padded_k(WeightFormat format, size_t k) {
  const size_t unit = format == WeightFormat::kBF16 ? 32 : format >= WeightFormat::kInt8 ? 64 : 1;
  return (k + unit - 1) / unit * unit;
}

/// Bytes of 32 inputs of an int4 panel: 32 scales (int8, one an output), then for each pair of steps of four
/// inputs [32 outputs][4] bytes, the lower half a byte the first step's weight + 8, the upper the second's.
inline constexpr size_t kInt4GroupBytes = kPanelWidth + kPanelWidth * 32 / 2;

/// Layout of a panel of 32 outputs, by format (K: the padded k):
///   f32, f16: [K][32]   bf16: [K / 2][32][2]   int8: [K / 4][32][4]   int4: [K / 32][kInt4GroupBytes]
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
  }
  return 0;
}

/// The form in which a matmul takes the rows of x. "Rows": one after another, ldx elements apart. "Tiles": of
/// 16 rows (the last one of those left), [tile][K / step][rows of the tile][64 bytes].
enum class RowForm : uint8_t {
  kF32,      // rows
  kRounded,  // rows of f32, rounded to bf16
  kBF16,     // rows
  kBF16Tiles,
  kInt8,   // rows
  kUint8,  // rows of int8 + 128
  kInt8Tiles,
};
/// Rows and bytes of a row that a tile of RowForm has.
inline constexpr size_t kTileRows = 16;
inline constexpr size_t kTileRowBytes = 64;

/// A matmul over the packed panels [first, last) that a piece is given besides.
struct MatmulArgs {
  const std::byte* panels = nullptr;
  size_t panel_bytes = 0;
  size_t n = 0;
  size_t k = 0;             // padded
  const void* x = nullptr;  // [m, k] in the form that the level asks for
  size_t ldx = 0;           // elements; of no meaning in tiles
  size_t m = 0;
  float* y = nullptr;
  size_t ldy = 0;
  const float* bias = nullptr;       // or null
  const float* x_scales = nullptr;   // [m], int8 and int4
  const float* w_scales = nullptr;   // [n rounded up to 32], int8 and int4
  const int32_t* offsets = nullptr;  // 128 times the sums of the weights, [n rounded up to 32]
  std::byte* scratch = nullptr;      // int4: this thread's own, int4_scratch_bytes(k)
};

/// Two panels as int8.
constexpr size_t int4_scratch_bytes(size_t k) { return 2 * padded_k(WeightFormat::kInt4, k) * kPanelWidth; }

using MatmulPieces = void (*)(const MatmulArgs& args, size_t first_panel, size_t last_panel);

struct MatmulKernel {
  MatmulPieces run;
  RowForm rows;
};

/// Attention of consecutive tokens of one sequence for the query heads of one K/V head. The cache is as
/// KvLayout says.
struct AttentionArgs {
  const std::byte* cache = nullptr;
  const BlockId* block_table = nullptr;
  size_t block_bytes = 0;
  uint32_t block_size = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t kv_head = 0;
  uint32_t group = 0;  // query heads
  uint32_t num_tokens = 0;
  uint32_t first_position = 0;
  uint32_t window = 0;
  float scale = 0.0F;
  float soft_cap = 0.0F;     // 0: none
  const float* q = nullptr;  // [num_tokens][group * head_dim]
  size_t ldq = 0;
  float* out = nullptr;
  size_t ldo = 0;
  size_t padded_dim = 0;  // head_dim rounded up to a multiple of 16
  // Only this span, whose results are left in `partials` instead of `out`: for each row padded_dim numbers,
  // its maximum and its sum, partial_floats(padded_dim) apart. Null: all spans, into `out`.
  uint32_t span = 0;
  float* partials = nullptr;
  float* scratch = nullptr;  // this thread's own: attention_scratch_floats(num_tokens * group, padded_dim)
};

constexpr size_t partial_floats(size_t padded_dim) { return padded_dim + 16; }

struct KernelTable {
  // [0] f32, [1] f16, [2] bf16: see float_index.
  void (*to_f32[3])(const void* from, float* to, size_t count);
  void (*from_f32[3])(const float* from, void* to, size_t count);  // rounds to nearest even
  MatmulKernel matmul[kNumWeightFormats];
  /// to[i] = the integer next to x[i] / scale; returns the scale, the largest magnitude / 127. NaN where a
  /// value is not finite. All levels give the same.
  float (*quantize)(const float* x, int8_t* to, size_t count);
  void (*attention[4])(const AttentionArgs& args);  // [3] int8
  /// Merges the partials of consecutive spans, one span's rows after the other's, into args.out; they are
  /// lost. Null: the level does not take spans one by one.
  void (*merge_spans)(const AttentionArgs& args, float* partials, size_t num_spans);

  void (*rms_norm)(const float* x, size_t ldx, const float* weight, float eps, float* y, size_t ldy,
                   size_t rows, size_t width);
  void (*add_in_place)(float* y, const float* x, float factor, size_t count);
  void (*scale_in_place)(float* x, float factor, size_t count);
  void (*soft_cap)(float* x, float cap, size_t count);
  void (*swiglu)(const float* gate_up, float* out, size_t rows, size_t width);
  void (*geglu)(const float* gate_up, float* out, size_t rows, size_t width);
  void (*rope)(float* x, size_t ldx, size_t rows, uint32_t num_heads, uint32_t head_dim, uint32_t rotary,
               const float* cos_sin, const uint32_t* positions);
  void (*route)(float* logits, size_t rows, uint32_t num_experts, uint32_t top, bool normalize,
                uint32_t* experts, float* weights);
  void (*combine)(const float* y, size_t ldy, const uint32_t* places, const float* weights, uint32_t top,
                  float* out, size_t ldo, size_t rows, size_t width);
};

}  // namespace quire::cpu
