#include "backend/cpu/weights.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "backend/cpu/weight_check.h"
#include "base/error.h"
#include "base/log.h"
#include "formats/model_tensors.h"

namespace quire::backend::cpu {
namespace {

class Loader {
 public:
  Loader(const formats::Checkpoint& file, const model::ModelConfig& config, const WeightSetting& setting,
         kernels::KernelContext& context, PackCache* kept)
      : file_(file),
        names_(formats::names_of(config, &file)),
        norm_offset_(model::family_of(config).norm_adds_one ? 1.0F : 0.0F),
        config_(config),
        setting_(setting),
        compute_(setting.compute),
        context_(context),
        kept_(kept) {}

  LayerWeights layer(uint32_t index) {
    const model::LayerTensors& t = names_.tensors.layer;
    const auto name = [&](std::string_view tensor) { return names_.layer(index, tensor); };
    LayerWeights out;
    out.attention_norm = layer_norm(index, t.attention_norm);
    out.qkv = linear(all(t.qkv, name), config_.qkv_bias);
    if (config_.qk_norm != model::QkNorm::kNone) {
      out.q_norm = layer_norm(index, t.q_norm);
      out.k_norm = layer_norm(index, t.k_norm);
    }
    out.o = linear({name(t.o)}, config_.o_bias);
    out.post_attention_norm = layer_norm(index, t.post_attention_norm);
    out.ffn_norm = layer_norm(index, t.ffn_norm);
    out.post_ffn_norm = layer_norm(index, t.post_ffn_norm);
    if (!config_.has_experts(index)) {
      out.ffn.gate_up = linear(all(t.gate_up, name), config_.mlp_bias);
      out.ffn.down = linear({name(t.down)}, config_.mlp_bias);
      return out;
    }
    out.router = matrix(name(t.router) + ".weight", weight_format_of(compute_));
    for (uint32_t expert = 0; expert < config_.moe.num_experts; ++expert) {
      const auto of = [&](std::string_view tensor) { return names_.expert(index, expert, tensor); };
      FeedForward& made = out.experts.emplace_back();
      made.gate_up = linear(all(t.expert_gate_up, of), false);
      made.down = linear({of(t.expert_down)}, false);
    }
    return out;
  }

  Buffer final_norm() { return norm(names_.of(names_.tensors.final_norm)); }
  kernels::PackedMatrix head() {
    const std::string name = names_.head(config_.tie_embeddings);
    return matrix(name, format_of(name));
  }
  formats::LoadedTensor embedding() {
    const std::string name = names_.of(names_.tensors.embedding);
    if (config_.tie_embeddings) return file_.load(name, compute_, context_.pool);  // checked as the head
    formats::LoadedTensor tensor = load(name, compute_);
    tensor.release_pages();
    return tensor;
  }

 private:
  template <class NameOf>
  static std::vector<std::string> all(std::span<const std::string_view> parts, const NameOf& name_of) {
    std::vector<std::string> out;
    for (const std::string_view part : parts) out.push_back(name_of(part));
    return out;
  }

  /// Quantized tensors come as `expand_to`.
  formats::LoadedTensor load(const std::string& name, DType expand_to) {
    formats::LoadedTensor tensor = file_.load(name, expand_to, context_.pool);
    warn_if_not_finite(context_, tensor.view(), file_.place(name));
    return tensor;
  }

  Buffer layer_norm(uint32_t index, std::string_view tensor) {
    return tensor.empty() ? Buffer() : norm(names_.layer(index, tensor) + ".weight");
  }

  Buffer norm(const std::string& name) {
    Buffer out = vectors({name});
    for (size_t i = 0; i < out.size() / sizeof(float); ++i) out.as<float>()[i] += norm_offset_;
    return out;
  }

  /// Several vectors one after the other, as f32.
  Buffer vectors(const std::vector<std::string>& tensor_names) {
    size_t count = 0;
    std::vector<formats::LoadedTensor> tensors;
    for (const std::string& name : tensor_names) {
      tensors.push_back(load(name, DType::kF32));
      count += tensors.back().view().num_elements();
    }
    Buffer out(count * sizeof(float));
    float* to = out.as<float>();
    for (const formats::LoadedTensor& tensor : tensors) {
      for (size_t i = 0; i < tensor.view().num_elements(); ++i) *to++ = element_as_f32(tensor.view(), i);
    }
    return out;
  }

  kernels::PackedMatrix matrix(const std::string& name, WeightFormat format) {
    return stacked({&name, 1}, format);
  }

  /// The parts, named without ".weight" and ".bias", stacked.
  Linear linear(const std::vector<std::string>& parts, bool with_bias) {
    std::vector<std::string> weights;
    std::vector<std::string> biases;
    for (const std::string& part : parts) {
      weights.push_back(part + ".weight");
      if (with_bias) biases.push_back(part + ".bias");
    }
    Linear out;
    for (auto first = weights.begin(); first != weights.end();) {
      const WeightFormat format = format_of(*first);
      const auto end = std::find_if(first, weights.end(),
                                    [&](const std::string& name) { return format_of(name) != format; });
      out.matrices.push_back(stacked(std::span(first, end), format));
      first = end;
    }
    if (with_bias) out.bias = vectors(biases);
    return out;
  }

  WeightFormat format_of(const std::string& name) const {
    const auto own = setting_.own_blocks ? file_.at(name).blocks() : std::nullopt;
    return own.value_or(setting_.format);
  }

  /// The matrices one above the other, packed or as they are kept.
  kernels::PackedMatrix stacked(std::span<const std::string> tensor_names, WeightFormat format) {
    const auto pack = [&] { return pack_stacked(tensor_names, format); };
    if (kept_ == nullptr) return pack();
    size_t n = 0;
    for (const std::string& name : tensor_names) n += static_cast<size_t>(file_.at(name).shape[0]);
    const auto k = static_cast<size_t>(file_.at(tensor_names.front()).shape[1]);
    kernels::PackedMatrix packed = kept_->next(n, k, format, pack);
    warn_of(packed, tensor_names);
    return packed;
  }

  /// What has been packed does not stay resident.
  kernels::PackedMatrix pack_stacked(std::span<const std::string> tensor_names, WeightFormat format) {
    std::vector<formats::LoadedTensor> tensors;
    std::vector<TensorView> views;
    for (const std::string& name : tensor_names) {
      tensors.push_back(is_ggml(format) ? file_.load_blocks(name, context_.pool)
                                        : file_.load(name, compute_, context_.pool));
      views.push_back(tensors.back().view());
    }
    kernels::PackedMatrix packed(context_, views, format, [&](size_t part, size_t first, size_t count) {
      tensors[part].release_rows(first, count);
    });
    if (kept_ == nullptr) warn_of(packed, tensor_names);
    return packed;
  }

  void warn_of(const kernels::PackedMatrix& packed, std::span<const std::string> tensor_names) {
    if (packed.finite()) return;
    for (const std::string& name : tensor_names) load(name, compute_);  // warns
  }

  const formats::Checkpoint& file_;
  formats::TensorNames names_;
  float norm_offset_;
  const model::ModelConfig& config_;
  WeightSetting setting_;
  DType compute_;
  kernels::KernelContext& context_;
  PackCache* kept_;  // null: none
};

void load_parts(const model::ModelConfig& config, kernels::KernelContext& context, ModelWeights& out) {
  Loader loader(*out.file, config, out.setting, context, out.kept.get());
  out.embedding = loader.embedding();
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) out.layers.push_back(loader.layer(layer));
  out.final_norm = loader.final_norm();
  out.head = loader.head();
  if (out.kept != nullptr) out.kept->finish();
}

}  // namespace

ModelWeights load_weights(const std::filesystem::path& model, model::ModelConfig& config,
                          const WeightSetting& setting, kernels::KernelContext& context,
                          const std::optional<std::filesystem::path>& pack_cache,
                          formats::FileAccess access) {
  ModelWeights out{setting, formats::Checkpoint::open(model, access), {}, {}, {}, {}, {}};
  formats::settle_head(config, *out.file);
  formats::check_tensors(config, *out.file);
  formats::warn_of_unused(config, *out.file);
  const auto& tensors = out.file->tensors();
  const auto is_in_blocks = [](const auto& tensor) { return tensor.second.blocks().has_value(); };
  out.setting.own_blocks = setting.own_blocks && std::any_of(tensors.begin(), tensors.end(), is_in_blocks);
  const auto keep = [&](PackCache::Start start) {
    if (!pack_cache) return;
    out.kept = std::make_unique<PackCache>(pack_file_path(*pack_cache, model, out.setting), model,
                                           pack_facts(*out.file, out.setting), context, access, start);
  };
  keep(PackCache::Start::kFromFile);
  try {
    load_parts(config, context, out);
  } catch (const OtherMatrices& error) {
    log_warning(fmt::format("{} (the weights are packed anew)", error.what()));
    out.layers.clear();
    out.head = {};
    keep(PackCache::Start::kAnew);
    load_parts(config, context, out);
  }
  if (access == formats::FileAccess::kRead) {
    out.embedding.detach();
    out.file.reset();
  }
  return out;
}

std::string formats_in_use(const ModelWeights& weights) {
  std::set<WeightFormat> formats = {weights.head.format()};
  const auto add = [&](const Linear& linear) {
    for (const kernels::PackedMatrix& matrix : linear.matrices) formats.insert(matrix.format());
  };
  const auto add_feed_forward = [&](const FeedForward& ffn) {
    add(ffn.gate_up);
    add(ffn.down);
  };
  for (const LayerWeights& layer : weights.layers) {
    add(layer.qkv);
    add(layer.o);
    add_feed_forward(layer.ffn);
    for (const FeedForward& expert : layer.experts) add_feed_forward(expert);
  }
  return names_of(formats);
}

std::string names_of(const std::set<WeightFormat>& formats) {
  std::string names;
  for (const WeightFormat format : formats) {
    names += fmt::format("{}{}", names.empty() ? "" : "+", weight_format_name(format));
  }
  return names;
}

}  // namespace quire::backend::cpu
