#include "kernels/matmul.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/table.h"

namespace quire {
namespace {

using cpu::kPanelWidth;
using cpu::RowForm;

/// x as a kernel takes it.
struct Activations {
  const void* data;
  size_t stride;  // in elements
  const float* scales = nullptr;
};

// Rows whose distance is a multiple of the L1 cache's way size compete for the same lines of it.
constexpr size_t kAliasingBytes = 1024;
constexpr size_t kManyRows = 4;
constexpr size_t kShiftBytes = 64;
constexpr size_t kLine = 64;
constexpr size_t kPart = 256;  // elements at a time, where they are converted on the way to a tile

constexpr bool is_tiled(RowForm form) { return form == RowForm::kBF16Tiles || form == RowForm::kInt8Tiles; }
constexpr bool is_quantized(RowForm form) { return form >= RowForm::kInt8; }

constexpr size_t element_bytes(RowForm form) {
  if (form <= RowForm::kRounded) return sizeof(float);
  return form <= RowForm::kBF16Tiles ? sizeof(uint16_t) : sizeof(int8_t);
}

size_t rounded_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

/// What a kernel takes for a row of x.
struct RowShape {
  RowForm form;
  size_t k;
  size_t padded_k;
  size_t group = 0;    // inputs that a sum is of, if there are any behind the row
  int32_t factor = 0;  // times which the sums are taken

  RowShape(RowForm row_form, WeightFormat format, size_t inputs)
      : form(row_form), k(inputs), padded_k(cpu::padded_k(format, inputs)) {
    if (form != RowForm::kInt8Sums) return;
    const cpu::BlockLayout layout = cpu::block_layout(format);
    group = layout.group;
    factor = layout.zero == 0 ? 1 : -layout.zero;
  }
  /// From a row to the next, or that a row takes in its tile.
  size_t bytes() const {
    const size_t sums = group == 0 ? 0 : padded_k / group * sizeof(int32_t);
    return padded_k * element_bytes(form) + sums + (is_tiled(form) ? 0 : kShiftBytes);
  }
};

/// Makes the rows of x what a kernel takes, in the context's scratch memory.
class RowMaker {
 public:
  RowMaker(const cpu::KernelTable& kernels, const RowShape& shape, const float* x, size_t ldx, size_t m,
           std::byte* to, float* scales)
      : kernels_(kernels),
        shape_(shape),
        form_(shape.form),
        x_(x),
        ldx_(ldx),
        m_(m),
        k_(shape.k),
        padded_k_(shape.padded_k),
        to_(to),
        scales_(scales) {}

  void make(size_t row) const {
    const size_t bytes = padded_k_ * element_bytes(form_);
    const float* from = x_ + row * ldx_;
    if (!is_tiled(form_)) {
      std::byte* to = to_ + row * shape_.bytes();
      fill(row, from, to);
      std::memset(to + k_ * element_bytes(form_), 0, bytes - k_ * element_bytes(form_));
      if (form_ == RowForm::kInt8Sums) add_sums(to);
      return;
    }
    const size_t tile = row / cpu::kTileRows;
    const size_t rows = std::min(cpu::kTileRows, m_ - tile * cpu::kTileRows);
    std::byte* to = to_ + tile * cpu::kTileRows * bytes + row % cpu::kTileRows * cpu::kTileRowBytes;
    const size_t stride = rows * cpu::kTileRowBytes;
    if (form_ == RowForm::kBF16Tiles) {
      scatter_bf16(from, to, stride);
    } else {
      scatter_int8(row, from, to, stride);
    }
  }

 private:
  void fill(size_t row, const float* from, std::byte* to) const {
    switch (form_) {
      case RowForm::kF32:
        std::memcpy(to, from, k_ * sizeof(float));
        return;
      case RowForm::kRounded:
        round(from, reinterpret_cast<float*>(to));
        return;
      case RowForm::kBF16:
        kernels_.from_f32[cpu::float_index(DType::kBF16)](from, to, k_);
        return;
      default:
        scales_[row] = kernels_.quantize(from, reinterpret_cast<int8_t*>(to), k_);
        if (form_ != RowForm::kUint8) return;
        for (size_t k = 0; k < k_; ++k) to[k] ^= std::byte{0x80};
    }
  }

  void round(const float* from, float* to) const {
    uint16_t part[kPart];
    for (size_t k0 = 0; k0 < k_; k0 += kPart) {
      const size_t count = std::min(kPart, k_ - k0);
      kernels_.from_f32[cpu::float_index(DType::kBF16)](from + k0, part, count);
      kernels_.to_f32[cpu::float_index(DType::kBF16)](part, to + k0, count);
    }
  }

  void add_sums(std::byte* row) const {
    const auto* integers = reinterpret_cast<const int8_t*>(row);
    auto* sums = reinterpret_cast<int32_t*>(row + padded_k_);
    for (size_t k = 0; k < padded_k_; k += shape_.group) {
      int32_t sum = 0;
      for (size_t i = 0; i < shape_.group; ++i) sum += integers[k + i];
      *sums++ = sum * shape_.factor;
    }
  }

  void scatter_bf16(const float* from, std::byte* to, size_t stride) const {
    constexpr size_t kStep = cpu::kTileRowBytes / sizeof(uint16_t);
    alignas(kLine) uint16_t part[kPart];
    for (size_t k0 = 0; k0 < padded_k_; k0 += kPart) {
      const size_t count = std::min(kPart, k_ - k0);
      const size_t padded = std::min(kPart, padded_k_ - k0);
      kernels_.from_f32[cpu::float_index(DType::kBF16)](from + k0, part, count);
      std::fill(part + count, part + padded, uint16_t{0});
      for (size_t k = 0; k < padded; k += kStep, to += stride) {
        std::memcpy(to, part + k, cpu::kTileRowBytes);
      }
    }
  }

  void scatter_int8(size_t row, const float* from, std::byte* to, size_t stride) const {
    thread_local std::vector<int8_t> line;
    line.assign(padded_k_, 0);
    scales_[row] = kernels_.quantize(from, line.data(), k_);
    for (size_t k = 0; k < padded_k_; k += cpu::kTileRowBytes, to += stride) {
      std::memcpy(to, line.data() + k, cpu::kTileRowBytes);
    }
  }

  const cpu::KernelTable& kernels_;
  const RowShape& shape_;
  RowForm form_;
  const float* x_;
  size_t ldx_;
  size_t m_;
  size_t k_;
  size_t padded_k_;
  std::byte* to_;
  float* scales_;
};

/// Whether a kernel takes the rows as they are.
bool as_they_are(RowForm form, size_t ldx, size_t m) {
  return form == RowForm::kF32 && (m <= kManyRows || ldx * sizeof(float) % kAliasingBytes != 0);
}

/// What a matmul needs of the scratch memory: the rows' scales, the rows, room for each thread.
struct Scratch {
  Scratch(KernelContext& context, const RowShape& shape, size_t ldx, size_t m, size_t thread_bytes)
      : thread_bytes_(thread_bytes) {
    const size_t scale_bytes = is_quantized(shape.form) ? rounded_up(m * sizeof(float), kLine) : 0;
    const size_t rows_made = as_they_are(shape.form, ldx, m) ? 0 : m;
    const size_t row_bytes = rounded_up(rows_made * shape.bytes(), kLine);
    context.scratch.reserve(scale_bytes + row_bytes + context.pool.num_threads() * thread_bytes);
    scales = context.scratch.as<float>();
    rows = context.scratch.data() + scale_bytes;
    threads_ = rows + row_bytes;
  }
  std::byte* of_thread(uint32_t thread) const { return threads_ + thread * thread_bytes_; }

  float* scales;
  std::byte* rows;

 private:
  std::byte* threads_;
  size_t thread_bytes_;
};

/// The rows in their form.
Activations prepare(KernelContext& context, const cpu::KernelTable& kernels, const RowShape& shape,
                    const Scratch& scratch, const float* x, size_t ldx, size_t m) {
  if (as_they_are(shape.form, ldx, m)) return {x, ldx};
  const RowMaker maker(kernels, shape, x, ldx, m, scratch.rows, scratch.scales);
  const size_t grain = cpu::balanced_grain(context.pool, m, 16384 / (shape.k + 1) + 1);
  context.pool.parallel_for(m, grain, [&](size_t begin, size_t end, uint32_t) {
    for (size_t row = begin; row < end; ++row) maker.make(row);
  });
  return {scratch.rows, shape.bytes() / element_bytes(shape.form), scratch.scales};
}

}  // namespace

void matmul(KernelContext& context, const PackedMatrix& weights, const float* x, size_t ldx, size_t m,
            float* y, size_t ldy, const float* bias) {
  if (m == 0 || weights.n() == 0) return;
  const cpu::KernelTable& kernels = cpu::table(context.isa);
  const cpu::MatmulKernel& kernel = kernels.matmul[static_cast<size_t>(weights.format())];
  const RowShape shape(kernel.rows, weights.format(), weights.k());
  const Scratch scratch(context, shape, ldx, m, cpu::scratch_bytes(weights.format(), m, shape.padded_k));
  const Activations activations = prepare(context, kernels, shape, scratch, x, ldx, m);
  const cpu::MatmulArgs args = {.panels = weights.data(),
                                .panel_bytes = cpu::panel_bytes(weights.format(), weights.k()),
                                .n = weights.n(),
                                .k = shape.padded_k,
                                .x = activations.data,
                                .ldx = activations.stride,
                                .m = m,
                                .y = y,
                                .ldy = ldy,
                                .bias = bias,
                                .x_scales = activations.scales,
                                .w_scales = weights.scales(),
                                .offsets = weights.offsets()};
  const size_t panels = (weights.n() + kPanelWidth - 1) / kPanelWidth;
  // A piece of less than some ten thousand multiplications costs less than waking a thread for it.
  const size_t min_panels = 65536 / (kPanelWidth * (weights.k() + 1) * m) + 1;
  context.pool.parallel_for(panels, cpu::balanced_grain(context.pool, panels, min_panels),
                            [&](size_t begin, size_t end, uint32_t thread) {
                              cpu::MatmulArgs own = args;
                              own.scratch = scratch.of_thread(thread);
                              kernel.run(own, begin, end);
                            });
}

}  // namespace quire
