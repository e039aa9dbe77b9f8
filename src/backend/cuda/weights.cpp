#include "backend/cuda/weights.h"

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "backend/cuda/supported.h"
#include "formats/checkpoint.h"
#include "formats/model_tensors.h"
#include "model/families.h"

namespace quire::backend::cuda {
namespace {

constexpr size_t kAlignment = 256;  // what cudaMalloc gives

/// Element by element; a checkpoint is usually in the type that is wanted, and then copied as it is.
void convert(const TensorView& from, DType dtype, std::byte* to) {
  for (size_t i = 0; i < from.num_elements(); ++i) {
    const float value = element_as_f32(from, i);
    if (dtype == DType::kF32) {
      std::memcpy(to + i * sizeof(value), &value, sizeof(value));
    } else {
      const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
      std::memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
    }
  }
}

/// Goes over the tensors in a fixed order and gives each its place. With `base` null that is all, so that the
/// first of two rounds says how much memory there must be.
class Loader {
 public:
  Loader(const formats::Checkpoint& file, const model::ModelConfig& config, DType dtype, ThreadPool& pool,
         Stream stream, std::byte* base)
      : file_(file),
        names_(formats::names_of(config, &file)),
        norm_offset_(model::family_of(config).norm_adds_one ? 1.0F : 0.0F),
        config_(config),
        dtype_(dtype),
        pool_(pool),
        stream_(stream),
        base_(base) {}

  size_t bytes() const { return bytes_; }

  void load(ModelWeights& out) {
    const Matrix embedding = matrix({names_.of(names_.tensors.embedding)});
    out.embedding = embedding.data;
    out.layers.clear();
    for (uint32_t index = 0; index < config_.num_layers; ++index) out.layers.push_back(layer(index));
    out.final_norm = norm(names_.of(names_.tensors.final_norm));
    out.head = config_.tie_embeddings ? embedding : matrix({names_.head(false)});
  }

 private:
  LayerWeights layer(uint32_t index) {
    const model::LayerTensors& t = names_.tensors.layer;
    const auto all = [&](std::span<const std::string_view> parts) {
      std::vector<std::string> out;
      for (const std::string_view part : parts) out.push_back(names_.layer(index, part));
      return out;
    };
    LayerWeights out;
    out.attention_norm = layer_norm(index, t.attention_norm);
    out.qkv = linear(all(t.qkv), config_.qkv_bias);
    if (config_.qk_norm != model::QkNorm::kNone) {
      out.q_norm = layer_norm(index, t.q_norm);
      out.k_norm = layer_norm(index, t.k_norm);
    }
    out.o = linear({names_.layer(index, t.o)}, config_.o_bias);
    out.post_attention_norm = layer_norm(index, t.post_attention_norm);
    out.ffn_norm = layer_norm(index, t.ffn_norm);
    out.gate_up = linear(all(t.gate_up), config_.mlp_bias);
    out.down = linear({names_.layer(index, t.down)}, config_.mlp_bias);
    out.post_ffn_norm = layer_norm(index, t.post_ffn_norm);
    return out;
  }

  /// The parts, named without ".weight" and ".bias", stacked.
  Matrix linear(const std::vector<std::string>& parts, bool with_bias) {
    std::vector<std::string> weights;
    std::vector<std::string> biases;
    for (const std::string& part : parts) {
      weights.push_back(part + ".weight");
      biases.push_back(part + ".bias");
    }
    Matrix out = matrix(weights);
    if (with_bias) out.bias = put(biases, dtype_);
    return out;
  }

  Matrix matrix(const std::vector<std::string>& tensors) {
    Matrix out;
    for (const std::string& name : tensors) out.n += static_cast<uint32_t>(file_.at(name).shape[0]);
    out.k = static_cast<uint32_t>(file_.at(tensors.front()).shape[1]);
    out.data = put(tensors, dtype_);
    return out;
  }

  const float* layer_norm(uint32_t index, std::string_view tensor) {
    return tensor.empty() ? nullptr : norm(names_.layer(index, tensor) + ".weight");
  }
  const float* norm(const std::string& name) {
    return reinterpret_cast<const float*>(put({name}, DType::kF32, norm_offset_));
  }

  /// The tensors one after the other, each number plus `more`.
  const std::byte* put(const std::vector<std::string>& tensors, DType dtype, float more = 0.0F) {
    const size_t first = bytes_;
    for (const std::string& name : tensors) {
      size_t count = 1;
      for (const int64_t extent : file_.at(name).shape) count *= static_cast<size_t>(extent);
      if (base_ != nullptr) copy(name, dtype, more, base_ + bytes_);
      bytes_ += count * dtype_bytes(dtype);
    }
    bytes_ = (bytes_ + kAlignment - 1) / kAlignment * kAlignment;
    return base_ == nullptr ? nullptr : base_ + first;
  }

  void copy(const std::string& name, DType dtype, float more, std::byte* to) {
    const formats::LoadedTensor tensor = file_.load(name, dtype, pool_);
    const TensorView& view = tensor.view();
    if (view.dtype == dtype && more == 0.0F) {
      copy_to_device(to, view.data, view.num_bytes(), stream_);
      return;
    }
    std::vector<std::byte> converted(view.num_elements() * dtype_bytes(dtype));
    convert(view, dtype, converted.data());
    for (size_t i = 0; more != 0.0F && i < view.num_elements(); ++i) {
      reinterpret_cast<float*>(converted.data())[i] += more;  // of norms, which are f32
    }
    copy_to_device(to, converted.data(), converted.size(), stream_);
  }

  const formats::Checkpoint& file_;
  formats::TensorNames names_;
  float norm_offset_;
  const model::ModelConfig& config_;
  DType dtype_;
  ThreadPool& pool_;
  Stream stream_;
  std::byte* base_;
  size_t bytes_ = 0;
};

}  // namespace

ModelWeights load_weights(const std::filesystem::path& model, model::ModelConfig& config, DType dtype,
                          ThreadPool& pool, Stream stream) {
  refuse_unsupported(config, dtype);
  const std::unique_ptr<formats::Checkpoint> file = formats::Checkpoint::open(model);
  formats::settle_head(config, *file);
  formats::check_tensors(config, *file);
  formats::warn_of_unused(config, *file);
  ModelWeights out;
  out.dtype = dtype;
  Loader sizes(*file, config, dtype, pool, stream, nullptr);
  sizes.load(out);
  out.memory = DeviceBuffer(sizes.bytes(), "the weights");
  Loader(*file, config, dtype, pool, stream, out.memory.data()).load(out);
  synchronize(stream);
  return out;
}

}  // namespace quire::backend::cuda
