#include "kernels/matmul.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/cpu/table.h"

namespace quire {
namespace {

using cpu::kPanelWidth;

constexpr size_t kPackChunk = 256;  // k at a time: 32 rows of it stay in L1 while they are transposed

size_t pack_of(DType dtype) { return dtype == DType::kBF16 ? 2 : 1; }

/// Rows [row0, row0 + rows) x k [k0, k0 + count) of `weights`, in `compute`, one row after another.
void convert_chunk(const cpu::KernelTable& kernels, const TensorView& weights, DType compute, size_t row,
                   size_t k, size_t k0, size_t count, std::byte* to) {
  const std::byte* from = weights.data + (row * k + k0) * dtype_bytes(weights.dtype);
  if (weights.dtype == compute) {
    std::memcpy(to, from, count * dtype_bytes(compute));
    return;
  }
  float values[kPackChunk];
  kernels.to_f32[cpu::float_index(weights.dtype)](from, values, count);
  kernels.from_f32[cpu::float_index(compute)](values, to, count);
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

void pack_panel(const cpu::KernelTable& kernels, const TensorView& weights, DType compute, size_t panel,
                size_t n, size_t k, std::byte* to) {
  const size_t pack = pack_of(compute);
  const size_t bytes = dtype_bytes(compute);
  const size_t rows = std::min(kPanelWidth, n - panel * kPanelWidth);
  alignas(64) std::byte chunk[kPanelWidth * kPackChunk * sizeof(float)];
  for (size_t k0 = 0; k0 < k; k0 += kPackChunk) {
    const size_t count = std::min(kPackChunk, k - k0);
    const size_t units = (count + pack - 1) / pack;
    const size_t row_bytes = units * pack * bytes;
    for (size_t row = 0; row < rows; ++row) {
      std::byte* line = chunk + row * row_bytes;
      convert_chunk(kernels, weights, compute, panel * kPanelWidth + row, k, k0, count, line);
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

}  // namespace

PackedMatrix::PackedMatrix(KernelContext& context, const TensorView& weights, DType compute)
    : dtype_(compute) {
  if (!is_float(weights.dtype) || !is_float(compute)) {
    throw Error(fmt::format("a weight matrix of {} cannot be computed with in {}", dtype_name(weights.dtype),
                            dtype_name(compute)));
  }
  if (weights.shape.size() != 2 || weights.shape[0] < 0 || weights.shape[1] < 0) {
    throw Error(fmt::format("a weight matrix has 2 dimensions, not {}", weights.shape.size()));
  }
  n_ = static_cast<size_t>(weights.shape[0]);
  k_ = static_cast<size_t>(weights.shape[1]);
  const size_t pack = pack_of(compute);
  const size_t panels = (n_ + kPanelWidth - 1) / kPanelWidth;
  const size_t panel_bytes = (k_ + pack - 1) / pack * pack * kPanelWidth * dtype_bytes(compute);
  data_ = Buffer(panels * panel_bytes);
  const cpu::KernelTable& kernels = cpu::table(context.isa);
  context.pool.parallel_for(panels, 1, [&](size_t begin, size_t end, uint32_t) {
    for (size_t panel = begin; panel < end; ++panel) {
      pack_panel(kernels, weights, compute, panel, n_, k_, data_.data() + panel * panel_bytes);
    }
  });
}

namespace {

/// x as a kernel takes it.
struct Activations {
  const void* data;
  size_t stride;  // in elements
};

// Rows whose distance is a multiple of the L1 cache's way size compete for the same lines of it.
constexpr size_t kAliasingBytes = 1024;
constexpr size_t kManyRows = 4;
constexpr size_t kStrideShift = 32;  // elements

/// Calls copy(row) for all rows, on as many threads as they are worth.
template <class Copy>
void for_rows(KernelContext& context, size_t rows, size_t row_elements, const Copy& copy) {
  const size_t grain = cpu::balanced_grain(context.pool, rows, 16384 / (row_elements + 1) + 1);
  context.pool.parallel_for(rows, grain, [&](size_t begin, size_t end, uint32_t) {
    for (size_t row = begin; row < end; ++row) copy(row);
  });
}

/// Rounded to bf16, padded to an even k with zeros.
Activations round_activations(KernelContext& context, const cpu::KernelTable& kernels, const float* x,
                              size_t ldx, size_t m, size_t k) {
  const size_t padded_k = (k + 1) / 2 * 2;
  const size_t stride = padded_k + kStrideShift;
  const size_t bytes = dtype_bytes(kernels.bf16_activations);
  context.scratch.reserve(m * stride * bytes);
  std::byte* rounded = context.scratch.data();
  const auto round = kernels.from_f32[cpu::float_index(DType::kBF16)];
  const auto widen = kernels.to_f32[cpu::float_index(DType::kBF16)];
  for_rows(context, m, k, [&](size_t row) {
    std::byte* to = rounded + row * stride * bytes;
    const float* from = x + row * ldx;
    if (kernels.bf16_activations == DType::kBF16) {
      round(from, to, k);
    } else {
      uint16_t part[kPackChunk];
      for (size_t k0 = 0; k0 < k; k0 += kPackChunk) {
        const size_t count = std::min(kPackChunk, k - k0);
        round(from + k0, part, count);
        widen(part, reinterpret_cast<float*>(to) + k0, count);
      }
    }
    std::memset(to + k * bytes, 0, (padded_k - k) * bytes);
  });
  return {rounded, stride};
}

/// As they are, or a copy at a stride that suits the cache.
Activations plain_activations(KernelContext& context, const float* x, size_t ldx, size_t m, size_t k) {
  if (m <= kManyRows || ldx * sizeof(float) % kAliasingBytes != 0) return {x, ldx};
  const size_t stride = k + kStrideShift;
  context.scratch.reserve(m * stride * sizeof(float));
  auto* copy = context.scratch.as<float>();
  for_rows(context, m, k,
           [&](size_t row) { std::memcpy(copy + row * stride, x + row * ldx, k * sizeof(float)); });
  return {copy, stride};
}

}  // namespace

void matmul(KernelContext& context, const PackedMatrix& weights, const float* x, size_t ldx, size_t m,
            float* y, size_t ldy, const float* bias) {
  if (m == 0 || weights.n() == 0) return;
  const cpu::KernelTable& kernels = cpu::table(context.isa);
  cpu::MatmulArgs args = {
      .panels = weights.data(), .n = weights.n(), .k = weights.k(), .m = m, .y = y, .ldy = ldy, .bias = bias};
  const Activations activations = weights.dtype() == DType::kBF16
                                      ? round_activations(context, kernels, x, ldx, m, weights.k())
                                      : plain_activations(context, x, ldx, m, weights.k());
  args.x = activations.data;
  args.ldx = activations.stride;
  const auto run = kernels.matmul[cpu::float_index(weights.dtype())];
  const size_t panels = (weights.n() + kPanelWidth - 1) / kPanelWidth;
  // A piece of less than some ten thousand multiplications costs less than waking a thread for it.
  const size_t min_panels = 65536 / (kPanelWidth * (weights.k() + 1) * m) + 1;
  context.pool.parallel_for(panels, cpu::balanced_grain(context.pool, panels, min_panels),
                            [&](size_t begin, size_t end, uint32_t) { run(args, begin, end); });
}

}  // namespace quire
