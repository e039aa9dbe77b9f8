#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "model/families.h"

namespace quire {
namespace {

const Family& family_of(const ModelConfig& config) {
  const Family* family = find_family(config.architecture);
  if (family == nullptr) throw Error(fmt::format("{} is not supported", config.architecture));
  return *family;
}

struct Widths {
  int64_t hidden, q, kv, ffn, vocab, head_dim;
  explicit Widths(const ModelConfig& c)
      : hidden(c.hidden_size),
        q(int64_t{c.num_heads} * c.head_dim),
        kv(int64_t{c.num_kv_heads} * c.head_dim),
        ffn(c.ffn_size),
        vocab(c.vocab_size),
        head_dim(c.head_dim) {}
};

/// Rows of each part of a stack; a family that stores the stack fused has one part with all the rows.
std::vector<int64_t> part_rows(size_t num_parts, std::initializer_list<int64_t> split) {
  if (num_parts == split.size()) return split;
  int64_t sum = 0;
  for (const int64_t rows : split) sum += rows;
  return {sum};
}

std::string layer_name(const ModelTensors& names, uint32_t layer, std::string_view tensor,
                       std::string_view suffix) {
  return fmt::format("{}{}.{}.{}", names.layer_prefix, layer, tensor, suffix);
}

float element_as_f32(const TensorView& tensor, size_t index) {
  switch (tensor.dtype) {
    case DType::kF16:
      return f16_to_f32(tensor.as<uint16_t>()[index]);
    case DType::kBF16:
      return bf16_to_f32(tensor.as<uint16_t>()[index]);
    default:
      return tensor.as<float>()[index];
  }
}

class Loader {
 public:
  Loader(const Checkpoint& file, const ModelConfig& config, DType compute, KernelContext& context)
      : file_(file),
        names_(*family_of(config).tensors),
        config_(config),
        widths_(config),
        compute_(compute),
        context_(context) {}

  LayerWeights layer(uint32_t index) {
    const LayerTensors& t = names_.layer;
    LayerWeights out;
    out.attention_norm = vectors({layer_name(names_, index, t.attention_norm, "weight")});
    out.qkv = linear(index, t.qkv, widths_.hidden, config_.qkv_bias);
    if (config_.qk_norm) {
      out.q_norm = vectors({layer_name(names_, index, t.q_norm, "weight")});
      out.k_norm = vectors({layer_name(names_, index, t.k_norm, "weight")});
    }
    out.o = linear(index, std::span(&t.o, 1), widths_.q, config_.o_bias);
    out.ffn_norm = vectors({layer_name(names_, index, t.ffn_norm, "weight")});
    out.gate_up = linear(index, t.gate_up, widths_.hidden, config_.mlp_bias);
    out.down = linear(index, std::span(&t.down, 1), widths_.ffn, config_.mlp_bias);
    return out;
  }

  /// Several vectors one after the other, as f32.
  Buffer vectors(const std::vector<std::string>& tensor_names) {
    size_t count = 0;
    std::vector<LoadedTensor> tensors;
    for (const std::string& name : tensor_names) {
      tensors.push_back(file_.load(name, DType::kF32, context_.pool));
      count += tensors.back().view().num_elements();
    }
    Buffer out(count * sizeof(float));
    float* to = out.as<float>();
    for (const LoadedTensor& tensor : tensors) {
      for (size_t i = 0; i < tensor.view().num_elements(); ++i) *to++ = element_as_f32(tensor.view(), i);
    }
    return out;
  }

  PackedMatrix matrix(const std::string& name) {
    return PackedMatrix(context_, file_.load(name, compute_, context_.pool).view(), compute_);
  }

 private:
  Linear linear(uint32_t index, std::span<const std::string_view> parts, int64_t k, bool with_bias) {
    std::vector<std::string> weights;
    std::vector<std::string> biases;
    for (const std::string_view part : parts) {
      weights.push_back(layer_name(names_, index, part, "weight"));
      if (with_bias) biases.push_back(layer_name(names_, index, part, "bias"));
    }
    Linear out;
    out.matrix = stacked(weights, k);
    if (with_bias) out.bias = vectors(biases);
    return out;
  }

  /// The matrices one above the other. Parts of different dtypes become f32 on the way.
  PackedMatrix stacked(const std::vector<std::string>& tensor_names, int64_t k) {
    if (tensor_names.size() == 1) return matrix(tensor_names.front());
    TensorView all;
    const auto dtype_of = [&](const TensorFacts& facts) { return facts.dtype.value_or(compute_); };
    all.dtype = dtype_of(file_.at(tensor_names.front()));
    all.shape = {0, k};
    for (const std::string& name : tensor_names) {
      const TensorFacts& part = file_.at(name);
      all.shape[0] += part.shape[0];
      if (dtype_of(part) != all.dtype) all.dtype = DType::kF32;
    }
    stack_.reserve(all.num_bytes());
    std::byte* to = stack_.data();
    for (const std::string& name : tensor_names) {
      const LoadedTensor loaded = file_.load(name, compute_, context_.pool);
      const TensorView& part = loaded.view();
      const size_t bytes = part.num_elements() * dtype_bytes(all.dtype);
      if (part.dtype == all.dtype) {
        std::memcpy(to, part.data, bytes);
      } else {
        auto* values = reinterpret_cast<float*>(to);
        for (size_t i = 0; i < part.num_elements(); ++i) values[i] = element_as_f32(part, i);
      }
      to += bytes;
    }
    all.data = stack_.data();
    return PackedMatrix(context_, all, compute_);
  }

  const Checkpoint& file_;
  const ModelTensors& names_;
  const ModelConfig& config_;
  Widths widths_;
  DType compute_;
  KernelContext& context_;
  Buffer stack_;  // reused from one stack to the next
};

void warn_of_unused(const ModelConfig& config, const Checkpoint& file) {
  std::set<std::string, std::less<>> used;
  for (ExpectedTensor& tensor : expected_tensors(config)) used.insert(std::move(tensor.name));
  std::vector<std::string_view> unused;
  for (const auto& [name, tensor] : file.tensors()) {
    const bool known_copy = name.ends_with("rotary_emb.inv_freq") || name == "lm_head.weight";
    if (!known_copy && !used.contains(name)) unused.push_back(name);
  }
  if (unused.empty()) return;
  log_warning(
      fmt::format("{} tensors of the checkpoint are not used by {}: {}{}", unused.size(), config.architecture,
                  fmt::join(unused.begin(), unused.begin() + std::min<size_t>(unused.size(), 3), ", "),
                  unused.size() > 3 ? ", ..." : ""));
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  const Family& family = family_of(config);
  const ModelTensors& names = *family.tensors;
  const LayerTensors& t = names.layer;
  const Widths w(config);
  std::vector<ExpectedTensor> out;
  out.push_back({fmt::format("{}.weight", names.embedding), {w.vocab, w.hidden}});
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const auto vector = [&](std::string_view name, int64_t width) {
      out.push_back({layer_name(names, layer, name, "weight"), {width}});
    };
    const auto matrices = [&](std::span<const std::string_view> parts, const std::vector<int64_t>& rows,
                              int64_t k, bool bias) {
      for (size_t i = 0; i < parts.size(); ++i) {
        out.push_back({layer_name(names, layer, parts[i], "weight"), {rows[i], k}});
        if (bias) out.push_back({layer_name(names, layer, parts[i], "bias"), {rows[i]}});
      }
    };
    vector(t.attention_norm, w.hidden);
    matrices(t.qkv, part_rows(t.qkv.size(), {w.q, w.kv, w.kv}), w.hidden, config.qkv_bias);
    if (config.qk_norm) {
      vector(t.q_norm, w.head_dim);
      vector(t.k_norm, w.head_dim);
    }
    matrices(std::span(&t.o, 1), {w.hidden}, w.q, config.o_bias);
    vector(t.ffn_norm, w.hidden);
    matrices(t.gate_up, part_rows(t.gate_up.size(), {w.ffn, w.ffn}), w.hidden, config.mlp_bias);
    matrices(std::span(&t.down, 1), {w.hidden}, w.ffn, config.mlp_bias);
  }
  out.push_back({fmt::format("{}.weight", names.final_norm), {w.hidden}});
  if (!config.tie_embeddings) out.push_back({fmt::format("{}.weight", names.head), {w.vocab, w.hidden}});
  return out;
}

void check_tensors(const ModelConfig& config, const Checkpoint& file) {
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    const TensorFacts& tensor = file.at(expected.name);
    if (tensor.shape != expected.shape) {
      throw file_error(file.path(),
                       fmt::format("tensor '{}' has shape [{}], expected [{}]", expected.name,
                                   fmt::join(tensor.shape, ", "), fmt::join(expected.shape, ", ")));
    }
    if (tensor.dtype && !is_float(*tensor.dtype)) {
      throw file_error(file.path(), fmt::format("tensor '{}' has dtype {}, a floating-point one was expected",
                                                expected.name, tensor.format));
    }
  }
}

ModelWeights load_weights(const std::filesystem::path& model, const ModelConfig& config, DType compute,
                          KernelContext& context) {
  ModelWeights out{Checkpoint::open(model), {}, {}, {}, {}};
  check_tensors(config, *out.file);
  warn_of_unused(config, *out.file);
  const ModelTensors& names = *family_of(config).tensors;
  Loader loader(*out.file, config, compute, context);
  out.embedding = out.file->load(fmt::format("{}.weight", names.embedding), compute, context.pool);
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) out.layers.push_back(loader.layer(layer));
  out.final_norm = loader.vectors({fmt::format("{}.weight", names.final_norm)});
  const std::string_view head = config.tie_embeddings ? names.embedding : names.head;
  out.head = loader.matrix(fmt::format("{}.weight", head));
  return out;
}

}  // namespace quire
