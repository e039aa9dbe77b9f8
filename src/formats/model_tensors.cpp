#include "formats/model_tensors.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"

namespace quire::formats {

std::string TensorNames::of(std::string_view tensor) const {
  return fmt::format("{}{}.weight", root.prefix, tensor);
}

std::string TensorNames::head(bool tied) const {
  return tied ? of(tensors.embedding) : fmt::format("{}.weight", root.head);
}

std::string TensorNames::layer(uint32_t index, std::string_view tensor) const {
  return fmt::format("{}{}{}.{}", root.prefix, tensors.layer_prefix, index, tensor);
}

std::string TensorNames::expert(uint32_t index, uint32_t expert, std::string_view tensor) const {
  return fmt::format("{}{}.{}", layer(index, tensors.layer.expert_prefix), expert, tensor);
}

/// The first root under which `file`, if there is one, has the embeddings.
TensorNames names_of(const model::ModelConfig& config, const Checkpoint* file) {
  const model::ModelTensors& tensors = *model::family_of(config).tensors;
  if (file != nullptr) {
    for (const model::TensorRoot& root : tensors.roots) {
      const TensorNames names{tensors, root};
      if (file->tensors().contains(names.of(tensors.embedding))) return names;
    }
  }
  return {tensors, tensors.roots.front()};
}

namespace {

struct Widths {
  int64_t hidden, q, kv, ffn, expert_ffn, experts, vocab, head_dim, q_norm, k_norm;
  explicit Widths(const model::ModelConfig& c)
      : hidden(c.hidden_size),
        q(int64_t{c.num_heads} * c.head_dim),
        kv(int64_t{c.num_kv_heads} * c.head_dim),
        ffn(c.ffn_size),
        expert_ffn(c.moe.ffn_size),
        experts(c.moe.num_experts),
        vocab(c.vocab_size),
        head_dim(c.head_dim),
        q_norm(c.qk_norm == model::QkNorm::kWhole ? q : head_dim),
        k_norm(c.qk_norm == model::QkNorm::kWhole ? kv : head_dim) {}
};

/// Rows of each part of a stack; a family that stores the stack fused has one part with all the rows.
std::vector<int64_t> part_rows(size_t num_parts, std::initializer_list<int64_t> split) {
  if (num_parts == split.size()) return split;
  int64_t sum = 0;
  for (const int64_t rows : split) sum += rows;
  return {sum};
}

/// Lists what a model has, part by part.
class TensorList {
 public:
  TensorList(const model::ModelConfig& config, const TensorNames& names)
      : config_(config), names_(names), widths_(config) {}

  void layer(uint32_t index) {
    const model::LayerTensors& t = names_.tensors.layer;
    const Widths& w = widths_;
    const auto name = [&](std::string_view tensor) { return names_.layer(index, tensor); };
    vector(index, t.attention_norm, w.hidden);
    matrices(t.qkv, name, part_rows(t.qkv.size(), {w.q, w.kv, w.kv}), w.hidden, config_.qkv_bias);
    if (config_.qk_norm != model::QkNorm::kNone) {
      vector(index, t.q_norm, w.q_norm);
      vector(index, t.k_norm, w.k_norm);
    }
    matrices(std::span(&t.o, 1), name, {w.hidden}, w.q, config_.o_bias);
    vector(index, t.post_attention_norm, w.hidden);
    vector(index, t.ffn_norm, w.hidden);
    vector(index, t.post_ffn_norm, w.hidden);
    if (!config_.has_experts(index)) {
      matrices(t.gate_up, name, part_rows(t.gate_up.size(), {w.ffn, w.ffn}), w.hidden, config_.mlp_bias);
      matrices(std::span(&t.down, 1), name, {w.hidden}, w.ffn, config_.mlp_bias);
      return;
    }
    matrices(std::span(&t.router, 1), name, {w.experts}, w.hidden, false);
    for (uint32_t expert = 0; expert < config_.moe.num_experts; ++expert) {
      const auto of = [&](std::string_view tensor) { return names_.expert(index, expert, tensor); };
      matrices(t.expert_gate_up, of, {w.expert_ffn, w.expert_ffn}, w.hidden, false);
      matrices(std::span(&t.expert_down, 1), of, {w.hidden}, w.expert_ffn, false);
    }
  }

  std::vector<ExpectedTensor> all() {
    const Widths& w = widths_;
    out_.push_back({names_.of(names_.tensors.embedding), {w.vocab, w.hidden}});
    for (uint32_t index = 0; index < config_.num_layers; ++index) layer(index);
    out_.push_back({names_.of(names_.tensors.final_norm), {w.hidden}});
    if (!config_.tie_embeddings) out_.push_back({names_.head(false), {w.vocab, w.hidden}});
    return std::move(out_);
  }

 private:
  void vector(uint32_t index, std::string_view tensor, int64_t width) {
    if (!tensor.empty()) out_.push_back({names_.layer(index, tensor) + ".weight", {width}});
  }

  template <class NameOf>
  void matrices(std::span<const std::string_view> parts, const NameOf& name_of,
                const std::vector<int64_t>& rows, int64_t k, bool bias) {
    for (size_t i = 0; i < parts.size(); ++i) {
      out_.push_back({name_of(parts[i]) + ".weight", {rows[i], k}});
      if (bias) out_.push_back({name_of(parts[i]) + ".bias", {rows[i]}});
    }
  }

  const model::ModelConfig& config_;
  const TensorNames& names_;
  Widths widths_;
  std::vector<ExpectedTensor> out_;
};

std::vector<ExpectedTensor> tensors_named(const model::ModelConfig& config, const TensorNames& names) {
  return TensorList(config, names).all();
}

bool same_values(const TensorView& a, const TensorView& b) {
  if (a.shape != b.shape) return false;
  if (a.dtype == b.dtype) return std::memcmp(a.data, b.data, a.num_bytes()) == 0;
  if (!is_float(a.dtype) || !is_float(b.dtype)) return false;
  for (size_t i = 0; i < a.num_elements(); ++i) {
    if (element_as_f32(a, i) != element_as_f32(b, i)) return false;
  }
  return true;
}

}  // namespace

void settle_head(model::ModelConfig& config, const Checkpoint& file) {
  if (!config.tie_embeddings) return;
  const TensorNames names = names_of(config, &file);
  const std::string embedding = names.of(names.tensors.embedding);
  const std::string head = names.head(false);
  if (file.find(head) == nullptr || file.find(embedding) == nullptr) return;
  ThreadPool pool(1);
  if (same_values(file.load(embedding, DType::kF32, pool).view(), file.load(head, DType::kF32, pool).view()))
    return;
  log_warning(
      fmt::format("{}: the config ties the head to the embeddings, but tensor '{}' differs from '{}', which "
                  "is used as the head",
                  file.path().string(), head, embedding));
  config.tie_embeddings = false;
}

std::vector<ExpectedTensor> expected_tensors(const model::ModelConfig& config) {
  return tensors_named(config, names_of(config, nullptr));
}

std::vector<ExpectedTensor> expected_tensors(const model::ModelConfig& config, const Checkpoint& file) {
  return tensors_named(config, names_of(config, &file));
}

void warn_of_unused(const model::ModelConfig& config, const Checkpoint& file) {
  std::set<std::string, std::less<>> used;
  for (ExpectedTensor& tensor : expected_tensors(config, file)) used.insert(std::move(tensor.name));
  const std::string head = names_of(config, &file).head(false);  // the embeddings' if it is tied
  std::vector<std::string_view> unused;
  for (const auto& [name, tensor] : file.tensors()) {
    const bool known_copy = name.ends_with("rotary_emb.inv_freq") || name == head;
    if (!known_copy && !used.contains(name)) unused.push_back(name);
  }
  if (unused.empty()) return;
  log_warning(
      fmt::format("{} tensors of the checkpoint are not used by {}: {}{}", unused.size(), config.architecture,
                  fmt::join(unused.begin(), unused.begin() + std::min<size_t>(unused.size(), 3), ", "),
                  unused.size() > 3 ? ", ..." : ""));
}

void check_tensors(const model::ModelConfig& config, const Checkpoint& file) {
  std::set<std::string, std::less<>> used;
  for (const ExpectedTensor& expected : expected_tensors(config, file)) {
    used.insert(expected.name);
    const TensorFacts& tensor = file.at(expected.name);
    if (tensor.shape != expected.shape) {
      throw file.error(expected.name,
                       fmt::format("has shape [{}], expected [{}]", fmt::join(tensor.shape, ", "),
                                   fmt::join(expected.shape, ", ")));
    }
    if (tensor.dtype && !is_float(*tensor.dtype)) {
      throw file.error(expected.name,
                       fmt::format("has dtype {}, a floating-point one was expected", tensor.format));
    }
  }
  file.refuse_unused(used);
}

}  // namespace quire::formats
