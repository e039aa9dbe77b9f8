#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/cpu/table.h"
#include "kernels/matmul.h"
#include "kernels/quantize.h"

// Packing: from rows of a checkpoint to the panels of kernels/cpu/kernel_table.h.
namespace quire {
namespace {

using cpu::kPanelWidth;

constexpr size_t kPackChunk = 256;  // k at a time: 32 rows of it stay in L1 while they are transposed

size_t pack_of(WeightFormat format) {
  if (format == WeightFormat::kBF16) return 2;
  return format >= WeightFormat::kInt8 ? 4 : 1;
}

DType dtype_of(WeightFormat format) {
  if (format == WeightFormat::kBF16) return DType::kBF16;
  return format == WeightFormat::kF16 ? DType::kF16 : DType::kF32;
}

/// Row `row`, k [k0, k0 + count) of `weights`, as `dtype`.
void convert_part(const cpu::KernelTable& kernels, const TensorView& weights, DType dtype, size_t row,
                  size_t k, size_t k0, size_t count, std::byte* to) {
  const std::byte* from = weights.data + (row * k + k0) * dtype_bytes(weights.dtype);
  if (weights.dtype == dtype) {
    std::memcpy(to, from, count * dtype_bytes(dtype));
    return;
  }
  float values[kPackChunk];
  kernels.to_f32[cpu::float_index(weights.dtype)](from, values, count);
  kernels.from_f32[cpu::float_index(dtype)](values, to, count);
}

/// Transposes `rows` rows of `units` units each into steps of 32 lanes; Unit is what one lane of a step
/// holds.
template <class Unit>
void interleave(const std::byte* chunk, size_t row_bytes, size_t rows, size_t units, std::byte* to) {
  for (size_t row = 0; row < rows; ++row) {
    const std::byte* from = chunk + row * row_bytes;
    for (size_t unit = 0; unit < units; ++unit) {
      std::memcpy(to + (unit * kPanelWidth + row) * sizeof(Unit), from + unit * sizeof(Unit), sizeof(Unit));
    }
  }
}

/// What packs one panel after the other; one a thread.
class Packer {
 public:
  Packer(const cpu::KernelTable& kernels, const TensorView& weights, WeightFormat format)
      : kernels_(kernels),
        weights_(weights),
        format_(format),
        n_(static_cast<size_t>(weights.shape[0])),
        k_(static_cast<size_t>(weights.shape[1])),
        padded_k_(cpu::padded_k(format, k_)) {
    if (format < WeightFormat::kInt8) return;
    row_.resize(k_);
    integers_.resize(kPanelWidth * padded_k_);
    group_scales_.resize(kPanelWidth * (padded_k_ / kInt4Group));
  }

  void pack(size_t panel, std::byte* to, float* scales, int32_t* offsets) {
    if (format_ < WeightFormat::kInt8) return pack_floats(panel, to);
    const size_t rows = rows_of(panel);
    std::fill(integers_.begin(), integers_.end(), int8_t{0});
    std::fill(group_scales_.begin(), group_scales_.end(), int8_t{0});
    for (size_t row = 0; row < rows; ++row) scales[row] = quantize(panel * kPanelWidth + row, row);
    if (format_ == WeightFormat::kInt8) {
      interleave<uint32_t>(reinterpret_cast<const std::byte*>(integers_.data()), padded_k_, rows,
                           padded_k_ / 4, to);
    } else {
      pack_nibbles(to);
    }
    for (size_t row = 0; row < rows; ++row) offsets[row] = 128 * sum_of(row);
  }

 private:
  size_t rows_of(size_t panel) const { return std::min(kPanelWidth, n_ - panel * kPanelWidth); }

  void pack_floats(size_t panel, std::byte* to) const {
    const DType dtype = dtype_of(format_);
    const size_t pack = pack_of(format_);
    const size_t bytes = dtype_bytes(dtype);
    const size_t rows = rows_of(panel);
    alignas(64) std::byte chunk[kPanelWidth * kPackChunk * sizeof(float)];
    for (size_t k0 = 0; k0 < k_; k0 += kPackChunk) {
      const size_t count = std::min(kPackChunk, k_ - k0);
      const size_t units = (count + pack - 1) / pack;
      const size_t row_bytes = units * pack * bytes;
      for (size_t row = 0; row < rows; ++row) {
        std::byte* line = chunk + row * row_bytes;
        convert_part(kernels_, weights_, dtype, panel * kPanelWidth + row, k_, k0, count, line);
        std::memset(line + count * bytes, 0, row_bytes - count * bytes);
      }
      std::byte* steps = to + k0 * kPanelWidth * bytes;
      if (pack * bytes == sizeof(uint32_t)) {
        interleave<uint32_t>(chunk, row_bytes, rows, units, steps);
      } else {
        interleave<uint16_t>(chunk, row_bytes, rows, units, steps);
      }
    }
  }

  /// Output `output` into line `row` of integers_ and group_scales_.
  float quantize(size_t output, size_t row) {
    const std::byte* from = weights_.data + output * k_ * dtype_bytes(weights_.dtype);
    kernels_.to_f32[cpu::float_index(weights_.dtype)](from, row_.data(), k_);
    int8_t* to = integers_.data() + row * padded_k_;
    if (format_ == WeightFormat::kInt8) return kernels_.quantize(row_.data(), to, k_);
    return quantize_int4(row_.data(), k_, to, group_scales_.data() + row * (padded_k_ / kInt4Group));
  }

  int32_t sum_of(size_t row) const {
    int32_t sum = 0;
    const int8_t* values = integers_.data() + row * padded_k_;
    for (size_t k = 0; k < padded_k_; ++k) {
      const int8_t factor =
          format_ == WeightFormat::kInt8 ? int8_t{1} : group_scales_[(row * padded_k_ + k) / kInt4Group];
      sum += values[k] * factor;
    }
    return sum;
  }

  void pack_nibbles(std::byte* to) const {
    constexpr size_t kStepBytes = kPanelWidth * 4;
    const size_t groups = padded_k_ / kInt4Group;
    for (size_t group = 0; group < groups; ++group, to += cpu::kInt4GroupBytes) {
      for (size_t row = 0; row < kPanelWidth; ++row) {
        to[row] = static_cast<std::byte>(group_scales_[row * groups + group]);
        const int8_t* from = integers_.data() + row * padded_k_ + group * kInt4Group;
        for (size_t k = 0; k < kInt4Group; k += 8) {
          std::byte* pair = to + kPanelWidth + k / 8 * kStepBytes + row * 4;
          for (size_t i = 0; i < 4; ++i) {
            pair[i] = static_cast<std::byte>((from[k + i] + 8) | ((from[k + 4 + i] + 8) << 4));
          }
        }
      }
    }
  }

  const cpu::KernelTable& kernels_;
  const TensorView& weights_;
  WeightFormat format_;
  size_t n_;
  size_t k_;
  size_t padded_k_;
  std::vector<float> row_;
  std::vector<int8_t> integers_;      // [32][padded k]
  std::vector<int8_t> group_scales_;  // [32][padded k / 32]
};

}  // namespace

PackedMatrix::PackedMatrix(KernelContext& context, const TensorView& weights, WeightFormat format)
    : format_(format) {
  if (!is_float(weights.dtype)) {
    throw Error(fmt::format("a weight matrix of {} cannot be computed with", dtype_name(weights.dtype)));
  }
  if (weights.shape.size() != 2 || weights.shape[0] < 0 || weights.shape[1] < 0) {
    throw Error(fmt::format("a weight matrix has 2 dimensions, not {}", weights.shape.size()));
  }
  n_ = static_cast<size_t>(weights.shape[0]);
  k_ = static_cast<size_t>(weights.shape[1]);
  const size_t panels = (n_ + kPanelWidth - 1) / kPanelWidth;
  const size_t panel_bytes = cpu::panel_bytes(format, k_);
  data_ = Buffer(panels * panel_bytes);
  if (format >= WeightFormat::kInt8) {
    scales_ = Buffer(panels * kPanelWidth * sizeof(float));
    offsets_ = Buffer(panels * kPanelWidth * sizeof(int32_t));
  }
  const cpu::KernelTable& kernels = cpu::table(context.isa);
  std::vector<Packer> packers(context.pool.num_threads(), Packer(kernels, weights, format));
  context.pool.parallel_for(panels, 1, [&](size_t begin, size_t end, uint32_t thread) {
    for (size_t panel = begin; panel < end; ++panel) {
      packers[thread].pack(panel, data_.data() + panel * panel_bytes,
                           scales_.as<float>() + panel * kPanelWidth,
                           offsets_.as<int32_t>() + panel * kPanelWidth);
    }
  });
}

}  // namespace quire
