#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
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

/// A matmul over the packed panels [first, last) that a piece is given besides. Layout of a panel, by dtype:
/// f32, f16: [k][32]; bf16: [(k + 1) / 2][32][2], an odd k padded with zeros.
struct MatmulArgs {
  const std::byte* panels = nullptr;
  size_t n = 0;
  size_t k = 0;
  const void* x = nullptr;  // [m, k] in the form that the level asks for, rows padded to even k for bf16
  size_t ldx = 0;           // elements of that form
  size_t m = 0;
  float* y = nullptr;
  size_t ldy = 0;
  const float* bias = nullptr;  // or null
};

/// Attention of consecutive tokens of one sequence for the query heads of one K/V head.
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
  size_t padded_dim = 0;     // head_dim rounded up to a multiple of 16
  float* scratch = nullptr;  // this thread's own: attention_scratch_floats(num_tokens * group, padded_dim)
};

struct KernelTable {
  // [0] f32, [1] f16, [2] bf16: see float_index.
  void (*to_f32[3])(const void* from, float* to, size_t count);
  void (*from_f32[3])(const float* from, void* to, size_t count);  // rounds to nearest even
  void (*matmul[3])(const MatmulArgs& args, size_t first_panel, size_t last_panel);
  void (*attention[3])(const AttentionArgs& args);
  DType bf16_activations;  // form of x in matmul[bf16]: kBF16, or kF32 holding values rounded to bf16

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
