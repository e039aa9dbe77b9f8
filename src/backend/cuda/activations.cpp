#include "backend/cuda/activations.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include <fmt/format.h>

#include "backend/cuda/attention_spans.h"
#include "backend/cuda/expert_product.h"
#include "backend/cuda/few_rows.h"
#include "backend/cuda/int4_weights.h"
#include "backend/cuda/int8_weights.h"
#include "formats/model_tensors.h"
#include "model/kv_groups.h"

namespace quire::backend::cuda {
namespace {

constexpr size_t kMostAttentionRows = 256;
constexpr size_t kMostPartialBytes = 64 << 20;

constexpr std::array<std::string_view, kNumOperations> kOperationNames = {
    "embed",    "norm",        "qkv",   "rope", "attend", "out",
    "ffn norm", "gate and up", "gated", "down", "select", "head"};

Lives in(std::initializer_list<Operation> operations) {
  Lives out = 0;
  for (const Operation operation : operations) out |= Lives{1} << static_cast<uint32_t>(operation);
  return out;
}

size_t bytes_of_partials(const model::ModelConfig& config, uint32_t positions) {
  const uint32_t spans = most_attention_spans(positions, 0);
  return partial_floats(config.num_heads, config.head_dim, spans) * sizeof(float);
}

/// Tokens, positions, lengths and sequences of the rows, tiles (at worst each row is one), where K/V goes in
/// each group, and block tables.
size_t input_numbers(const model::ModelConfig& config, uint32_t block_size, const StepLimits& limits) {
  const size_t groups = model::group_layers(config).windows.size();
  const size_t entries = (limits.positions + block_size - 1) / block_size;
  return limits.rows * (4 + kNumbersOfTile + groups) + groups * limits.seqs * entries;
}

/// Numbers between gates and down for a row of a dense layer; 0: there is none.
size_t dense_width(const model::ModelConfig& config) {
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    if (!config.has_experts(layer)) return config.ffn_size;
  }
  return 0;
}

/// The same of any layer: those of all experts of a row.
size_t feed_forward_width(const model::ModelConfig& config) {
  return std::max(dense_width(config), size_t{config.moe.top} * config.moe.ffn_size);
}

}  // namespace

ChoiceNumbers choice_numbers(const model::ModelConfig& config, const StepLimits& limits) {
  if (config.moe.num_experts == 0) return {};
  const size_t choices = size_t{limits.rows} * config.moe.top;
  const size_t tiles = expert_tiles(choices, config.moe.num_experts, kSmallTile);  // of larger ones fewer
  ChoiceNumbers out;
  out.weights = choices;
  out.order = out.weights + choices;
  out.tiles = out.order + choices;
  out.all = out.tiles + tiles * (sizeof(ExpertTile) / sizeof(uint32_t));
  return out;
}

uint32_t attention_rows(const model::ModelConfig& config, const StepLimits& limits) {
  const size_t fit = std::max<size_t>(1, kMostPartialBytes / bytes_of_partials(config, limits.positions));
  return static_cast<uint32_t>(std::min({fit, kMostAttentionRows, size_t{limits.rows}}));
}

Activations lay_out_activations(const model::ModelConfig& config, DType dtype, uint32_t block_size,
                                const StepLimits& limits) {
  using enum Operation;
  const size_t row = padded_rows(limits.rows) * dtype_bytes(dtype);
  const size_t logit_rows = padded_rows(limits.logit_rows);
  const size_t q = size_t{config.num_heads} * config.head_dim;
  const size_t kv = size_t{config.num_kv_heads} * config.head_dim;
  const auto angles = [&](const model::RopeConfig& rope) {
    return size_t{limits.positions} * config.rotary(rope) * sizeof(float);
  };
  // Two steps may be in flight: what the host writes for one, and what is read of its logits, keeps its
  // place.
  Activations out;
  const auto has = [&out](Activation which, std::string_view name, size_t bytes, Lives lives) {
    out.buffers[static_cast<size_t>(which)] = {name, bytes, lives};
  };
  has(Activation::kResidual, "residual", row * config.hidden_size, kAlways);
  has(Activation::kNormed, "normed", row * config.hidden_size, in({kNorm, kQkv, kFfnNorm, kGateUp}));
  has(Activation::kQkv, "qkv", row * (q + 2 * kv), in({kQkv, kRope, kAttend}));
  has(Activation::kAttended, "attended", row * q, in({kAttend, kOut}));
  has(Activation::kAdded, "added", row * config.hidden_size, in({kOut, kFfnNorm, kDown, kNorm}));
  has(Activation::kGateUp, "gate and up", row * 2 * feed_forward_width(config), in({kGateUp, kGated}));
  has(Activation::kFfn, "feed-forward", row * feed_forward_width(config), in({kGated, kDown}));
  has(Activation::kSelected, "selected", logit_rows * config.hidden_size * dtype_bytes(dtype),
      in({kSelect, kHead}));
  has(Activation::kLogits, "logits",
      logit_rows * result_stride(config.vocab_size, DType::kF32) * sizeof(float), kAlways);
  has(Activation::kPartials, "partials",
      attention_rows(config, limits) * bytes_of_partials(config, limits.positions), in({kAttend}));
  has(Activation::kPlaces, "places", limits.logit_rows * sizeof(uint32_t), kAlways);
  has(Activation::kInput, "input", input_numbers(config, block_size, limits) * sizeof(uint32_t), kAlways);
  has(Activation::kMainAngles, "angles", angles(config.rope), kAlways);
  has(Activation::kLocalAngles, "local angles", config.local_rope ? angles(*config.local_rope) : 0, kAlways);
  has(Activation::kRouted, "routed",
      padded_rows(limits.rows) * router_rows(config.moe.num_experts) * sizeof(float), in({kGateUp}));
  has(Activation::kChoices, "choices", choice_numbers(config, limits).all * sizeof(uint32_t),
      in({kGateUp, kGated, kDown}));
  has(Activation::kOfExperts, "of experts", row * config.moe.top * config.hidden_size, in({kDown}));
  const size_t few = dtype == DType::kF32 ? 0 : padded_rows(kFewRows);
  has(Activation::kFfnOfFew, "feed-forward of few", few * dtype_bytes(dtype) * dense_width(config),
      in({kGateUp, kGated, kDown}));
  out.bytes = place_buffers(out.buffers);
  return out;
}

std::string describe(Lives lives) {
  if (lives == kAlways) return "always";
  std::string out;
  const auto lives_in = [&](size_t operation) {
    return operation < kNumOperations && (lives >> operation & 1) != 0;
  };
  for (size_t first = 0; first < kNumOperations; ++first) {
    if (!lives_in(first)) continue;
    size_t last = first;
    while (lives_in(last + 1)) ++last;
    if (!out.empty()) out += ", ";
    out += kOperationNames[first];
    if (last > first) out.append(last == first + 1 ? ", " : " to ").append(kOperationNames[last]);
    first = last;
  }
  return out;
}

namespace {

/// With its scales, but for those of rows that fill up 16 of them.
uint64_t integer_row_bytes(WeightFormat format, uint32_t k) {
  if (format == WeightFormat::kInt8) return int8_row_bytes(k) + sizeof(float);
  return int4_row_bytes(k) + int4_scale_stride(k) / kScaleRows + sizeof(float);
}

}  // namespace

uint64_t weight_bytes(const model::ModelConfig& config, DType dtype,
                      std::optional<WeightFormat> quantization) {
  const formats::TensorNames names = formats::names_of(config, nullptr);
  const std::string embedding = names.of(names.tensors.embedding);
  const std::string router = fmt::format("{}.weight", names.tensors.layer.router);
  uint64_t sum = 0;
  for (const formats::ExpectedTensor& tensor : formats::expected_tensors(config)) {
    uint64_t count = 1;
    for (const int64_t extent : tensor.shape) count *= static_cast<uint64_t>(extent);
    const bool is_matrix = tensor.shape.size() == 2;
    const auto as_integers = [&] {
      const auto rows = static_cast<uint64_t>(tensor.shape[0]);
      return rows * integer_row_bytes(*quantization, static_cast<uint32_t>(tensor.shape[1]));
    };
    const bool is_embedding = tensor.name == embedding;
    const bool is_router = !names.tensors.layer.router.empty() && tensor.name.ends_with(router);
    if (quantization && is_matrix && is_embedding && config.tie_embeddings) sum += as_integers();  // the head
    if (quantization && is_matrix && !is_embedding && !is_router) {
      sum += as_integers();
      continue;
    }
    if (is_router) count = uint64_t{router_rows(config.moe.num_experts)} * config.hidden_size;
    const bool is_norm = !is_matrix && !tensor.name.ends_with(".bias");
    sum += count * dtype_bytes(is_norm ? DType::kF32 : dtype);
  }
  return sum;
}

}  // namespace quire::backend::cuda
