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
#include "backend/cuda/int4_weights.h"
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

/// The scales of a matrix of integers, or of one of each expert.
struct IntegerScales {
  std::vector<float> of_rows;
  std::vector<int8_t> of_groups;  // with int4
};

/// How the rows of a matrix of k columns become integers.
class RowQuantizer {
 public:
  /// `rows` have scales of groups of their own: a matrix, of which there may be several.
  RowQuantizer(WeightFormat format, uint32_t rows, uint32_t k)
      : is_int4_(format == WeightFormat::kInt4), rows_(rows), k_(k) {}

  uint32_t k() const { return k_; }
  size_t rows_at_once() const { return is_int4_ ? kernels::kInt4Rows : 1; }
  size_t row_bytes() const { return is_int4_ ? int4_row_bytes(k_) : int8_row_bytes(k_); }
  size_t group_bytes() const { return is_int4_ ? int4_scale_bytes(rows_, k_) : 0; }

  /// Rows [first, first + count) of `from`, which are as many from row `row` on of all.
  void quantize(const TensorView& from, size_t first, size_t count, size_t row, std::byte* to,
                IntegerScales& scales) const {
    std::memset(to, 0, count * row_bytes());
    std::vector<float> values(rows_at_once() * k_);
    for (size_t done = 0; done < count; done += rows_at_once()) {
      const size_t some = std::min(rows_at_once(), count - done);
      for (size_t i = 0; i < some * k_; ++i) values[i] = element_as_f32(from, (first + done) * k_ + i);
      std::byte* const rows_to = to + done * row_bytes();
      float* const row_scales = scales.of_rows.data() + row + done;
      is_int4_ ? as_int4(values, some, rows_to, row_scales, row + done, scales.of_groups)
               : as_int8(values, rows_to, *row_scales);
    }
  }

 private:
  void as_int8(const std::vector<float>& values, std::byte* to, float& scale) const {
    std::vector<int8_t> integers(k_);
    scale = kernels::quantize_int8(values.data(), integers.data(), k_);
    if (std::isnan(scale)) return;  // there are no integers
    for (uint32_t j = 0; j < k_; ++j) to[int8_place(j)] = static_cast<std::byte>(integers[j]);
  }

  void as_int4(const std::vector<float>& values, size_t count, std::byte* to, float* scales, size_t row,
               std::vector<int8_t>& group_scales) const {
    const size_t groups = (k_ + kInt4Scaled - 1) / kInt4Scaled;
    std::vector<int8_t> integers(count * k_);
    std::vector<int8_t> of_groups(count * groups);
    kernels::quantize_int4_rows(values.data(), count, k_, integers.data(), of_groups.data(), scales);
    for (size_t i = 0; i < count; ++i, to += row_bytes()) {
      for (uint32_t j = 0; j < k_; ++j) {
        const uint32_t nibble = int4_place(j);
        to[nibble / 2] |= static_cast<std::byte>((integers[i * k_ + j] + 8) << nibble % 2 * 4);
      }
      const size_t of_all = row + i;
      int8_t* const of_matrix = group_scales.data() + of_all / rows_ * group_bytes();
      for (uint32_t group = 0; group < groups; ++group) {
        const auto in_matrix = static_cast<uint32_t>(of_all % rows_);
        of_matrix[int4_scale_place(in_matrix, group * kInt4Scaled, k_)] = of_groups[i * groups + group];
      }
    }
  }

  bool is_int4_;
  uint32_t rows_;
  uint32_t k_;
};
static_assert(kInt4Scaled == kernels::kInt4Group);

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
        quantization_(options.quantization),
        staged_(options.staged),
        base_(base),
        staging_(staging) {}

  size_t bytes() const { return bytes_; }
  /// Of the largest tensor, and of the largest row of integers.
  size_t most_bytes() const { return most_bytes_; }
  size_t most_row_bytes() const { return most_row_bytes_; }

  void load(ModelWeights& out) {
    const std::string embeddings = names_.of(names_.tensors.embedding);
    const Matrix embedding = matrix({embeddings});
    out.embedding = embedding.data;
    out.layers.clear();
    for (uint32_t index = 0; index < config_.num_layers; ++index) out.layers.push_back(layer(index));
    out.final_norm = norm(names_.of(names_.tensors.final_norm));
    out.head = config_.tie_embeddings && !quantization_
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
    Matrix out = product(weights, config_.moe.num_experts);
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

  /// One that most of the work is with, which may be integers; or as many as `matrices`, one behind the
  /// other.
  Matrix product(const std::vector<std::string>& tensors, uint32_t matrices = 1) {
    if (!quantization_) return matrix(tensors);
    Matrix out = shape_of(tensors);
    const RowQuantizer quantizer(*quantization_, out.n / matrices, out.k);
    const size_t row = quantizer.row_bytes();
    IntegerScales scales;
    if (staging_ != nullptr) {
      scales.of_rows.resize(out.n);
      scales.of_groups.resize(matrices * quantizer.group_bytes());
    }
    const size_t first = bytes_;
    size_t done = 0;
    for (const std::string& name : tensors) {
      const auto rows = static_cast<size_t>(file_.at(name).shape[0]);
      if (staging_ != nullptr) copy_integers(name, quantizer, done, base_ + bytes_, scales);
      bytes_ += rows * row;
      most_bytes_ = std::max(most_bytes_, rows * row);
      done += rows;
    }
    most_row_bytes_ = std::max(most_row_bytes_, row);
    align();
    if (base_ != nullptr) out.data = base_ + first;
    out.scales = reinterpret_cast<const float*>(
        put_scales(std::as_bytes(std::span(scales.of_rows)), size_t{out.n} * sizeof(float)));
    if (quantizer.group_bytes() > 0) {
      out.group_scales = reinterpret_cast<const int8_t*>(
          put_scales(std::as_bytes(std::span(scales.of_groups)), matrices * quantizer.group_bytes()));
    }
    return out;
  }

  const std::byte* put_scales(std::span<const std::byte> scales, size_t bytes) {
    const std::byte* const to = base_ == nullptr ? nullptr : base_ + bytes_;
    if (staging_ != nullptr) copy_scales(scales);
    bytes_ += bytes;
    align();
    return to;
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

  /// Likewise, whole rows at a time, which are from `done` on those of the matrix.
  void copy_integers(const std::string& name, const RowQuantizer& quantizer, size_t done, std::byte* to,
                     IntegerScales& scales) {
    const formats::LoadedTensor tensor = file_.load(name, DType::kF32, pool_);
    const TensorView& view = tensor.view();
    const size_t row = quantizer.row_bytes();
    const size_t rows = view.num_elements() / quantizer.k();
    const size_t at_once = std::max<size_t>(1, staged_ / row);
    for (size_t first = 0; first < rows; first += at_once) {
      const size_t count = std::min(at_once, rows - first);
      std::byte* piece = staging_->take();
      const size_t grain = std::max(kGrain / quantizer.k() + 1, quantizer.rows_at_once());
      pool_.parallel_for(count, grain, [&](size_t begin, size_t end, uint32_t) {
        quantizer.quantize(view, first + begin, end - begin, done + first + begin, piece + begin * row,
                           scales);
      });
      staging_->copy(to + first * row, count * row, stream_);
    }
  }

  /// To where the next tensor would be.
  void copy_scales(std::span<const std::byte> scales) {
    std::byte* to = base_ + bytes_;
    while (!scales.empty()) {
      const std::span<const std::byte> some = scales.first(std::min(staged_, scales.size()));
      std::memcpy(staging_->take(), some.data(), some.size());
      staging_->copy(to, some.size(), stream_);
      to += some.size();
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
  std::optional<WeightFormat> quantization_;
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
