// The plain version of every op: what the vectorised ones are read and tested against.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/select_experts.h"
#include "kernels/cpu/table.h"
#include "kernels/quantize.h"

namespace quire::kernels::cpu {
namespace {

struct F32 {
  using Bits = float;
  static float load(Bits bits) { return bits; }
  static Bits store(float value) { return value; }
};
struct F16 {
  using Bits = uint16_t;
  static float load(Bits bits) { return f16_to_f32(bits); }
  static Bits store(float value) { return f32_to_f16(value); }
};
struct Bf16 {
  using Bits = uint16_t;
  static float load(Bits bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
  static Bits store(float value) { return f32_to_bf16(value); }
};

template <class T>
void to_f32(const void* from, float* to, size_t count) {
  const auto* source = static_cast<const typename T::Bits*>(from);
  for (size_t i = 0; i < count; ++i) to[i] = T::load(source[i]);
}

template <class T>
void from_f32(const float* from, void* to, size_t count) {
  auto* target = static_cast<typename T::Bits*>(to);
  for (size_t i = 0; i < count; ++i) target[i] = T::store(from[i]);
}

/// Panels of [steps][32][kPack]: one step is kPack consecutive k.
template <class T, size_t kPack>
void matmul(const MatmulArgs& args, size_t first_panel, size_t last_panel) {
  const size_t panel_elements = args.k * kPanelWidth;
  const auto* weights = reinterpret_cast<const typename T::Bits*>(args.panels);
  const auto* x = static_cast<const float*>(args.x);
  for (size_t panel = first_panel; panel < last_panel; ++panel) {
    const typename T::Bits* w = weights + panel * panel_elements;
    const size_t columns = std::min(kPanelWidth, args.n - panel * kPanelWidth);
    for (size_t row = 0; row < args.m; ++row) {
      float sums[kPanelWidth] = {};
      for (size_t k = 0; k < args.k; ++k) {
        const typename T::Bits* lane = w + (k / kPack) * kPack * kPanelWidth + k % kPack;
        const float factor = x[row * args.ldx + k];
        for (size_t i = 0; i < columns; ++i) sums[i] += factor * T::load(lane[i * kPack]);
      }
      float* y = args.y + row * args.ldy + panel * kPanelWidth;
      for (size_t i = 0; i < columns; ++i) {
        y[i] = args.bias != nullptr ? sums[i] + args.bias[panel * kPanelWidth + i] : sums[i];
      }
    }
  }
}

/// The weight of input k, output `lane`, as the integer that it is multiplied as.
int32_t int8_weight(const std::byte* panel, size_t k, size_t lane) {
  return static_cast<int8_t>(panel[(k / 4 * kPanelWidth + lane) * 4 + k % 4]);
}
int32_t int4_weight(const std::byte* panel, size_t k, size_t lane) {
  constexpr size_t kGroup = 32;
  const std::byte* group = panel + k / kGroup * kInt4GroupBytes;
  const size_t step = k % kGroup / 4;
  const auto pair = static_cast<uint8_t>(group[kPanelWidth + (step / 2 * kPanelWidth + lane) * 4 + k % 4]);
  const int32_t nibble = step % 2 == 0 ? pair & 0x0f : pair >> 4;
  return (nibble - 8) * static_cast<int8_t>(group[lane]);
}

/// Products of rows of integers with weights, product(panel, lane of it, row), times the scale of the row and
/// perhaps that of the output.
template <bool kOutputScales, class Product>
void matmul_scaled(const MatmulArgs& args, size_t first_panel, size_t last_panel, const Product& product) {
  const auto* x = static_cast<const int8_t*>(args.x);
  for (size_t panel = first_panel; panel < last_panel; ++panel) {
    const std::byte* w = args.panels + panel * args.panel_bytes;
    const size_t first = panel * kPanelWidth;
    for (size_t row = 0; row < args.m; ++row) {
      for (size_t i = first; i < std::min(args.n, first + kPanelWidth); ++i) {
        float& y = args.y[row * args.ldy + i];
        y = product(w, i - first, x + row * args.ldx) * args.x_scales[row];
        if constexpr (kOutputScales) y *= args.w_scales[i];
        if (args.bias != nullptr) y += args.bias[i];
      }
    }
  }
}

template <int32_t (*kWeight)(const std::byte* panel, size_t k, size_t lane)>
void matmul_integers(const MatmulArgs& args, size_t first_panel, size_t last_panel) {
  matmul_scaled<true>(args, first_panel, last_panel,
                      [&](const std::byte* panel, size_t lane, const int8_t* x) {
                        int32_t sum = 0;
                        for (size_t k = 0; k < args.k; ++k) sum += kWeight(panel, k, lane) * x[k];
                        return static_cast<float>(sum);
                      });
}

/// The weights of ggml's blocks, panel by panel.
template <WeightFormat kFormat>
struct Blocks {
  static constexpr BlockLayout kLayout = block_layout(kFormat);

  /// Of input k: what its header is followed by, and what its 32 inputs' scales are.
  static const std::byte* header(const std::byte* panel, size_t k) {
    return panel + k / kLayout.inputs * kLayout.bytes();
  }
  static const std::byte* block(const std::byte* panel, size_t k) {
    return header(panel, k) + kLayout.header_bytes +
           k % kLayout.inputs / kBlockInputs * kLayout.block_bytes();
  }
  static int32_t integer(const std::byte* panel, size_t k, size_t lane) {
    const std::byte* integers = block(panel, k) + kLayout.scale_bytes;
    const size_t step = k % kBlockInputs / 4;
    const size_t row = kLayout.nibbles ? step / 2 : step;
    const auto byte = static_cast<uint8_t>(integers[(row * kPanelWidth + lane) * 4 + k % 4]);
    const int32_t nibble = step % 2 == 0 ? byte & 0x0f : byte >> 4;
    return (kLayout.nibbles ? nibble : byte) - kLayout.zero;
  }
  static float half(const std::byte* panel, size_t k, size_t lane, size_t kind) {
    uint16_t bits = 0;
    std::memcpy(&bits, header(panel, k) + (kind * kPanelWidth + lane) * sizeof(bits), sizeof(bits));
    return f16_to_f32(bits);
  }
  /// The small scale, of one kind or the other; there may be none.
  static float factor(const std::byte* panel, size_t k, size_t lane, size_t kind) {
    if (kLayout.scale_bytes == 0) return 1.0F;
    return static_cast<int8_t>(block(panel, k)[kind * kPanelWidth + lane]);
  }
  static float scale(const std::byte* panel, size_t k, size_t lane) {
    return half(panel, k, lane, 0) * factor(panel, k, lane, k % kBlockInputs / kLayout.group);
  }
  static float minimum(const std::byte* panel, size_t k, size_t lane) {
    return half(panel, k, lane, 1) * factor(panel, k, lane, 1);
  }
};

/// Weights `lane` of a panel times a row's integers.
template <WeightFormat kFormat>
float block_product(const std::byte* panel, size_t lane, const int8_t* x, size_t count) {
  using B = Blocks<kFormat>;
  float sum = 0.0F;
  for (size_t first = 0; first < count; first += B::kLayout.group) {
    int32_t dot = 0;
    int32_t x_sum = 0;
    for (size_t k = first; k < first + B::kLayout.group; ++k) {
      dot += B::integer(panel, k, lane) * x[k];
      x_sum += x[k];
    }
    sum = std::fma(static_cast<float>(dot), B::scale(panel, first, lane), sum);
    if (B::kLayout.zero == 0) {
      sum = std::fma(-B::minimum(panel, first, lane), static_cast<float>(x_sum), sum);
    }
  }
  return sum;
}

template <WeightFormat kFormat>
void matmul_blocks(const MatmulArgs& args, size_t first_panel, size_t last_panel) {
  matmul_scaled<false>(args, first_panel, last_panel,
                       [&](const std::byte* panel, size_t lane, const int8_t* x) {
                         return block_product<kFormat>(panel, lane, x, args.k);
                       });
}

/// Of K/V; the scales are in the block.
struct I8 {
  using Bits = int8_t;
  static float load(Bits bits) { return bits; }
};

/// One query head of one token: online softmax over the tiles from `first_key` to `position`.
template <class T>
void attend_row(const AttentionArgs& args, uint32_t kv_head, uint32_t position, const float* q, float* out) {
  using Bits = typename T::Bits;
  const uint32_t head_dim = args.head_dim;
  const uint32_t first_key = args.window != 0 && position >= args.window ? position - args.window + 1 : 0;
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0F;
  std::fill_n(args.scratch, head_dim, 0.0F);
  for (uint32_t base = first_key / kTileKeys * kTileKeys; base <= position; base += kTileKeys) {
    const uint32_t in_block = base % args.block_size;
    const auto* block = reinterpret_cast<const Bits*>(args.cache + args.block_table[base / args.block_size] *
                                                                       args.block_bytes);
    const size_t head_elements = size_t{args.block_size} * head_dim;
    const Bits* keys = block + kv_head * head_elements + size_t{in_block} * head_dim;
    const Bits* values = keys + args.num_kv_heads * head_elements;
    const auto* key_scales = reinterpret_cast<const float*>(block + 2 * args.num_kv_heads * head_elements) +
                             size_t{kv_head} * args.block_size + in_block;
    const float* value_scales = key_scales + size_t{args.num_kv_heads} * args.block_size;
    constexpr bool kScaled = sizeof(Bits) == 1;
    constexpr DType kType = kScaled ? DType::kI8 : std::is_same_v<T, Bf16> ? DType::kBF16 : DType::kF32;
    constexpr size_t kKeyStep = key_step(kType);
    constexpr size_t kValueStep = value_step(kType);
    const uint32_t begin = std::max(base, first_key) - base;
    const uint32_t end = std::min(position - base + 1, kTileKeys);

    float scores[kTileKeys];
    float tile_max = max;
    for (uint32_t j = begin; j < end; ++j) {
      float dot = 0.0F;
      for (uint32_t d = 0; d < head_dim; ++d)
        dot += q[d] * args.scale * T::load(keys[(d / kKeyStep * kTileKeys + j) * kKeyStep + d % kKeyStep]);
      if (kScaled) dot *= key_scales[j];
      if (args.soft_cap != 0.0F) dot = std::tanh(dot / args.soft_cap) * args.soft_cap;
      scores[j] = dot;
      tile_max = std::max(tile_max, dot);
    }
    const float rescale = std::exp(max - tile_max);
    max = tile_max;
    sum *= rescale;
    for (uint32_t d = 0; d < head_dim; ++d) args.scratch[d] *= rescale;
    for (uint32_t j = begin; j < end; ++j) {
      float weight = std::exp(scores[j] - max);
      sum += weight;
      if (kScaled) weight *= value_scales[j];
      for (uint32_t d = 0; d < head_dim; ++d) {
        args.scratch[d] +=
            weight * T::load(values[(j / kValueStep * head_dim + d) * kValueStep + j % kValueStep]);
      }
    }
  }
  for (uint32_t d = 0; d < head_dim; ++d) out[d] = args.scratch[d] / sum;
}

template <class T>
void attention(const AttentionArgs& args) {
  for (uint32_t token = 0; token < args.num_tokens; ++token) {
    for (uint32_t head = 0; head < args.num_heads * args.group; ++head) {
      const size_t offset = size_t{head} * args.head_dim;
      attend_row<T>(args, args.kv_head + head / args.group, args.first_position + token,
                    args.q + token * args.ldq + offset, args.out + token * args.ldo + offset);
    }
  }
}

void rms_norm(const float* x, size_t ldx, const float* weight, float eps, float* y, size_t ldy, size_t rows,
              size_t width) {
  for (size_t row = 0; row < rows; ++row) {
    const float* in = x + row * ldx;
    float* out = y + row * ldy;
    double sum = 0.0;
    for (size_t i = 0; i < width; ++i) sum += static_cast<double>(in[i]) * in[i];
    const double mean = sum / static_cast<double>(width);
    const auto scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps)));
    for (size_t i = 0; i < width; ++i) out[i] = in[i] * scale * weight[i];
  }
}

void add_in_place(float* y, const float* x, float factor, size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] += x[i] * factor;
}

void scale_in_place(float* x, float factor, size_t count) {
  for (size_t i = 0; i < count; ++i) x[i] *= factor;
}

void soft_cap(float* x, float cap, size_t count) {
  for (size_t i = 0; i < count; ++i) x[i] = std::tanh(x[i] / cap) * cap;
}

void swiglu(const float* gate, const float* up, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
}

void geglu(const float* gate, const float* up, float* out, size_t count) {
  constexpr float kRootOfTwoOverPi = 0.7978845608F;
  for (size_t i = 0; i < count; ++i) {
    const float g = gate[i];
    // 0.5 (1 + tanh u) = 1 / (1 + exp(-2 u)), which cancels nothing
    const float u = kRootOfTwoOverPi * (g + 0.044715F * g * g * g);
    out[i] = g / (1.0F + std::exp(-2.0F * u)) * up[i];
  }
}

void route(float* logits, size_t rows, uint32_t num_experts, uint32_t top, bool normalize, uint32_t* experts,
           float* weights) {
  for (size_t row = 0; row < rows; ++row) {
    float* p = logits + row * num_experts;
    const float max = *std::max_element(p, p + num_experts);
    float sum = 0.0F;
    for (uint32_t i = 0; i < num_experts; ++i) sum += p[i] = std::exp(p[i] - max);
    for (uint32_t i = 0; i < num_experts; ++i) p[i] /= sum;
    select_experts(p, num_experts, top, normalize, experts + row * top, weights + row * top);
  }
}

void combine(const float* y, size_t ldy, const uint32_t* places, const float* weights, uint32_t top,
             float* out, size_t ldo, size_t rows, size_t width) {
  for (size_t row = 0; row < rows; ++row) {
    float* to = out + row * ldo;
    std::fill_n(to, width, 0.0F);
    for (uint32_t j = 0; j < top; ++j) {
      const float* from = y + places[row * top + j] * ldy;
      for (size_t i = 0; i < width; ++i) to[i] += weights[row * top + j] * from[i];
    }
  }
}

void rope(float* x, size_t ldx, size_t rows, uint32_t num_heads, uint32_t head_dim, uint32_t rotary,
          const float* cos_sin, const uint32_t* positions) {
  const uint32_t half = rotary / 2;
  for (size_t row = 0; row < rows; ++row) {
    const float* cosine = cos_sin + size_t{positions[row]} * rotary;
    const float* sine = cosine + half;
    for (uint32_t head = 0; head < num_heads; ++head) {
      float* low = x + row * ldx + size_t{head} * head_dim;
      float* high = low + half;
      for (uint32_t i = 0; i < half; ++i) {
        const float a = low[i];
        const float b = high[i];
        low[i] = a * cosine[i] - b * sine[i];
        high[i] = b * cosine[i] + a * sine[i];
      }
    }
  }
}

}  // namespace

const KernelTable& reference_table() {
  static constexpr KernelTable kTable = {
      .to_f32 = {to_f32<F32>, to_f32<F16>, to_f32<Bf16>},
      .from_f32 = {from_f32<F32>, from_f32<F16>, from_f32<Bf16>},
      .matmul = {{matmul<F32, 1>, RowForm::kF32},
                 {matmul<F16, 1>, RowForm::kF32},
                 {matmul<Bf16, 2>, RowForm::kRounded},
                 {matmul_integers<int8_weight>, RowForm::kInt8},
                 {matmul_integers<int4_weight>, RowForm::kInt8},
                 {matmul_blocks<WeightFormat::kQ8_0>, RowForm::kInt8},
                 {matmul_blocks<WeightFormat::kQ4_0>, RowForm::kInt8},
                 {matmul_blocks<WeightFormat::kQ4_K>, RowForm::kInt8},
                 {matmul_blocks<WeightFormat::kQ6_K>, RowForm::kInt8}},
      .quantize = quantize_int8,
      .attention = {attention<F32>, attention<F16>, attention<Bf16>, attention<I8>},
      .merge_spans = nullptr,
      .rms_norm = rms_norm,
      .add_in_place = add_in_place,
      .scale_in_place = scale_in_place,
      .soft_cap = soft_cap,
      .swiglu = swiglu,
      .geglu = geglu,
      .rope = rope,
      .route = route,
      .combine = combine,
  };
  return kTable;
}

}  // namespace quire::kernels::cpu
