#include "backend/cuda/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "backend/cuda/arena.h"
#include "backend/cuda/int8_weights.h"
#include "backend/cuda/route.h"
#include "backend/cuda/staging.h"
#include "backend/cuda/supported.h"
#include "formats/checkpoint.h"
#include "formats/model_tensors.h"
#include "kernels/quantize.h"
#include "model/families.h"

namespace quire::backend::cuda {
namespace {

constexpr size_t kGrain = 1 << 16;  // elements that a thread converts at once

/// The elements [first, first + count) as `dtype`, each plus `more`. A checkpoint is usually in the type that
/// is wanted, and then copied as it is.
void convert(const TensorView& from, size_t first, size_t count, DType dtype, float more, std::byte* to) {
  const size_t bytes = dtype_bytes(dtype);
  if (from.dtype == dtype && more == 0.0F) {
    std::memcpy(to, static_cast<const std::byte*>(from.data) + first * bytes, count * bytes);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const float value = element_as_f32(from, first + i) + more;
    if (dtype == DType::kF32) {
      std::memcpy(to + i * bytes, &value, bytes);
    } else {
      const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
      std::memcpy(to + i * bytes, &bits, bytes);
    }
  }
}

/// Rows [first, first + count) of a matrix of k columns as int8, and their scales.
void quantize(const TensorView& from, size_t first, size_t count, uint32_t k, std::byte* to, float* scales) {
  std::vector<float> row(k);
  std::vector<int8_t> integers(k);
  const size_t bytes = int8_row_bytes(k);
  std::memset(to, 0, count * bytes);
  for (size_t i = 0; i < count; ++i, to += bytes) {
    for (uint32_t j = 0; j < k; ++j) row[j] = element_as_f32(from, (first + i) * k + j);
    scales[i] = kernels::quantize_int8(row.data(), integers.data(), k);
    if (std::isnan(scales[i])) continue;  // there are no integers
    for (uint32_t j = 0; j < k; ++j) to[int8_place(j)] = static_cast<std::byte>(integers[j]);
  }
}

/// Goes over the tensors in a fixed order and gives each its place. Without `staging` that is all, so that
/// the first of two rounds says how much memory there must be.
class Loader {
 public:
  Loader(const formats::Checkpoint& file, const model::ModelConfig& config, DType dtype, ThreadPool& pool,
         Stream stream, const WeightOptions& options, std::byte* base = nullptr, Staging* staging = nullptr)
      : file_(file),
        names_(formats::names_of(config, &file)),
        norm_offset_(model::family_of(config).norm_adds_one ? 1.0F : 0.0F),
        config_(config),
        dtype_(dtype),
        pool_(pool),
        stream_(stream),
        int8_(options.int8),
        staged_(options.staged),
        base_(base),
        staging_(staging) {}

  size_t bytes() const { return bytes_; }
  /// Of the largest tensor, and of the largest row of int8.
  size_t most_bytes() const { return most_bytes_; }
  size_t most_row_bytes() const { return most_row_bytes_; }

  void load(ModelWeights& out) {
    const std::string embeddings = names_.of(names_.tensors.embedding);
    const Matrix embedding = matrix({embeddings});
    out.embedding = embedding.data;
    out.layers.clear();
    for (uint32_t index = 0; index < config_.num_layers; ++index) out.layers.push_back(layer(index));
    out.final_norm = norm(names_.of(names_.tensors.final_norm));
    out.head = config_.tie_embeddings && !int8_
                   ? embedding
                   : product({config_.tie_embeddings ? embeddings : names_.head(false)});
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
    out.post_ffn_norm = layer_norm(index, t.post_ffn_norm);
    if (config_.has_experts(index)) {
      out.router = router(names_.layer(index, t.router) + ".weight");
      out.gate_up = of_experts(index, t.expert_gate_up);
      out.down = of_experts(index, std::span(&t.expert_down, 1));
      return out;
    }
    out.gate_up = linear(all(t.gate_up), config_.mlp_bias);
    out.down = linear({names_.layer(index, t.down)}, config_.mlp_bias);
    return out;
  }

  Matrix router(const std::string& name) {
    Matrix out = shape_of({name});
    const size_t rows = router_rows(out.n) - out.n;
    out.data = put({name}, dtype_, 0.0F, rows * out.k * dtype_bytes(dtype_));
    out.n += static_cast<uint32_t>(rows);
    return out;
  }

  /// A matrix of each expert, stacked of these parts.
  Matrix of_experts(uint32_t index, std::span<const std::string_view> parts) {
    std::vector<std::string> weights;
    for (uint32_t expert = 0; expert < config_.moe.num_experts; ++expert) {
      for (const std::string_view part : parts)
        weights.push_back(names_.expert(index, expert, part) + ".weight");
    }
    Matrix out = product(weights);
    out.n /= config_.moe.num_experts;
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
    Matrix out = product(weights);
    if (with_bias) out.bias = put(biases, dtype_);
    return out;
  }

  /// The tensors stacked, without data.
  Matrix shape_of(const std::vector<std::string>& tensors) const {
    Matrix out;
    for (const std::string& name : tensors) out.n += static_cast<uint32_t>(file_.at(name).shape[0]);
    out.k = static_cast<uint32_t>(file_.at(tensors.front()).shape[1]);
    return out;
  }
  Matrix matrix(const std::vector<std::string>& tensors) {
    Matrix out = shape_of(tensors);
    out.data = put(tensors, dtype_);
    return out;
  }

  /// One that most of the work is with, which may be int8.
  Matrix product(const std::vector<std::string>& tensors) {
    if (!int8_) return matrix(tensors);
    Matrix out = shape_of(tensors);
    const size_t row = int8_row_bytes(out.k);
    std::vector<float> scales(staging_ != nullptr ? out.n : 0);
    const size_t first = bytes_;
    size_t done = 0;
    for (const std::string& name : tensors) {
      const auto rows = static_cast<size_t>(file_.at(name).shape[0]);
      if (staging_ != nullptr) copy_int8(name, out.k, base_ + bytes_, scales.data() + done);
      bytes_ += rows * row;
      most_bytes_ = std::max(most_bytes_, rows * row);
      done += rows;
    }
    most_row_bytes_ = std::max(most_row_bytes_, row);
    align();
    if (base_ != nullptr) {
      out.data = base_ + first;
      out.scales = reinterpret_cast<const float*>(base_ + bytes_);
    }
    if (staging_ != nullptr) copy_scales(scales);
    bytes_ += size_t{out.n} * sizeof(float);
    align();
    return out;
  }

  const float* layer_norm(uint32_t index, std::string_view tensor) {
    return tensor.empty() ? nullptr : norm(names_.layer(index, tensor) + ".weight");
  }
  const float* norm(const std::string& name) {
    return reinterpret_cast<const float*>(put({name}, DType::kF32, norm_offset_));
  }

  /// The tensors one after the other, each number plus `more`; and so many bytes of zeros.
  const std::byte* put(const std::vector<std::string>& tensors, DType dtype, float more = 0.0F,
                       size_t zeros = 0) {
    const size_t first = bytes_;
    for (const std::string& name : tensors) {
      size_t count = 1;
      for (const int64_t extent : file_.at(name).shape) count *= static_cast<size_t>(extent);
      if (staging_ != nullptr) copy(name, dtype, more, base_ + bytes_);
      bytes_ += count * dtype_bytes(dtype);
      most_bytes_ = std::max(most_bytes_, count * dtype_bytes(dtype));
    }
    if (staging_ != nullptr && zeros > 0) clear(base_ + bytes_, zeros, stream_);
    bytes_ += zeros;
    align();
    return base_ == nullptr ? nullptr : base_ + first;
  }
  void align() { bytes_ = (bytes_ + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

  /// While the device copies a piece, the next is converted.
  void copy(const std::string& name, DType dtype, float more, std::byte* to) {
    const formats::LoadedTensor tensor = file_.load(name, dtype, pool_);
    const TensorView& view = tensor.view();
    const size_t bytes = dtype_bytes(dtype);
    const size_t at_once = staged_ / bytes;
    for (size_t first = 0; first < view.num_elements(); first += at_once) {
      const size_t count = std::min(at_once, view.num_elements() - first);
      std::byte* piece = staging_->take();
      pool_.parallel_for(count, kGrain, [&](size_t begin, size_t end, uint32_t) {
        convert(view, first + begin, end - begin, dtype, more, piece + begin * bytes);
      });
      staging_->copy(to + first * bytes, count * bytes, stream_);
    }
  }

  /// Likewise, whole rows at a time.
  void copy_int8(const std::string& name, uint32_t k, std::byte* to, float* scales) {
    const formats::LoadedTensor tensor = file_.load(name, DType::kF32, pool_);
    const TensorView& view = tensor.view();
    const size_t row = int8_row_bytes(k);
    const size_t rows = view.num_elements() / k;
    const size_t at_once = std::max<size_t>(1, staged_ / row);
    for (size_t first = 0; first < rows; first += at_once) {
      const size_t count = std::min(at_once, rows - first);
      std::byte* piece = staging_->take();
      pool_.parallel_for(count, kGrain / k + 1, [&](size_t begin, size_t end, uint32_t) {
        quantize(view, first + begin, end - begin, k, piece + begin * row, scales + first + begin);
      });
      staging_->copy(to + first * row, count * row, stream_);
    }
  }

  /// To where the next tensor would be.
  void copy_scales(std::span<const float> scales) {
    std::byte* to = base_ + bytes_;
    const size_t at_once = staged_ / sizeof(float);
    while (!scales.empty()) {
      const std::span<const float> some = scales.first(std::min(at_once, scales.size()));
      std::memcpy(staging_->take(), some.data(), some.size_bytes());
      staging_->copy(to, some.size_bytes(), stream_);
      to += some.size_bytes();
      scales = scales.subspan(some.size());
    }
  }

  const formats::Checkpoint& file_;
  formats::TensorNames names_;
  float norm_offset_;
  const model::ModelConfig& config_;
  DType dtype_;
  ThreadPool& pool_;
  Stream stream_;
  bool int8_;
  size_t staged_;
  std::byte* base_;
  Staging* staging_;
  size_t bytes_ = 0;
  size_t most_bytes_ = 0;
  size_t most_row_bytes_ = 0;
};

}  // namespace

ModelWeights load_weights(const std::filesystem::path& model, model::ModelConfig& config, DType dtype,
                          ThreadPool& pool, Stream stream, const WeightOptions& options) {
  refuse_unsupported(config, dtype);
  const std::unique_ptr<formats::Checkpoint> file = formats::Checkpoint::open(model);
  formats::settle_head(config, *file);
  formats::check_tensors(config, *file);
  formats::warn_of_unused(config, *file);
  ModelWeights out;
  out.dtype = dtype;
  Loader sizes(*file, config, dtype, pool, stream, options);
  sizes.load(out);
  out.memory = DeviceBuffer(sizes.bytes(), "the weights");
  WeightOptions fitting = options;
  fitting.staged = std::max(std::min(options.staged, sizes.most_bytes()), sizes.most_row_bytes());
  Staging staging(fitting.staged, "weights on their way to the device");
  Loader(*file, config, dtype, pool, stream, fitting, out.memory.data(), &staging).load(out);
  synchronize(stream);
  return out;
}

}  // namespace quire::backend::cuda
