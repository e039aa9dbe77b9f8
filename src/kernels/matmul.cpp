#include "kernels/matmul.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/table.h"

namespace quire::kernels {
namespace {

using cpu::kPanelWidth;
using cpu::RowForm;

/// x as a kernel takes it.
struct Activations {
  const void* data;
  size_t stride;  // in elements
  const float* scales = nullptr;
};

constexpr size_t kShiftBytes = 64;  // else rows might compete for the same lines of the L1 cache
constexpr size_t kLine = 64;
constexpr size_t kPart = 256;  // elements at a time, where they are converted on the way to a tile
// Of a piece of work: less costs less than waking a thread for it. Where rows lie interleaved, what is much
// more leaves one thread waiting for the other at the end; AMX is through it in no time, and ggml's blocks
// keep their rows in L2 while many panels pass.
constexpr size_t kLeastProducts = size_t{1} << 16;
constexpr size_t kMostProducts = size_t{1} << 27;

constexpr bool is_tiled(RowForm form) { return form == RowForm::kBF16Tiles || form == RowForm::kInt8Tiles; }
constexpr bool is_quantized(RowForm form) { return form >= RowForm::kInt8; }

constexpr size_t element_bytes(RowForm form) {
  if (form <= RowForm::kRounded) return sizeof(float);
  return form <= RowForm::kBF16Tiles ? sizeof(uint16_t) : sizeof(int8_t);
}

size_t rounded_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

/// Where the rows of x lie; or those of gates and what they let through, one behind the other.
struct Source {
  const float* x;
  size_t ldx;
  size_t m;
  cpu::Gated gated = nullptr;
};

/// What a kernel takes for a row of x.
struct RowShape {
  RowForm form;
  bool gated;  // x is not in memory
  size_t k;
  size_t padded_k;
  size_t group = 0;    // inputs that a sum is of, if there are any behind the row
  int32_t factor = 0;  // times which the sums are taken
  size_t tiles = 0;    // in which the rows lie interleaved; 0: they do not

  RowShape(const cpu::MatmulKernel& kernel, WeightFormat format, size_t inputs, size_t m, bool is_gated)
      : form(kernel.rows), gated(is_gated), k(inputs), padded_k(cpu::padded_k(format, inputs)) {
    if (kernel.row_tiles != nullptr && m > 1) tiles = kernel.row_tiles(m);
    if (form != RowForm::kInt8Sums) return;
    const cpu::BlockLayout layout = cpu::block_layout(format);
    group = layout.group;
    factor = layout.zero == 0 ? 1 : -layout.zero;
  }
  /// Of consecutive inputs that stay together where rows are interleaved.
  size_t step() const {
    if (is_quantized(form)) return 4;
    return form == RowForm::kF32 ? 1 : 2;
  }
  /// From a row to the next where they lie one after another, or what one takes of its tile.
  size_t bytes() const {
    const size_t sums = group == 0 ? 0 : padded_k / group * sizeof(int32_t);
    return padded_k * element_bytes(form) + sums + (is_tiled(form) || tiles > 0 ? 0 : kShiftBytes);
  }
  /// Of a row of tiles.
  size_t steps() const { return padded_k * element_bytes(form) / cpu::kTileRowBytes; }
  /// The kernel takes x itself.
  bool is_source() const { return form == RowForm::kF32 && tiles == 0 && !gated; }
  /// Rows are quantized whole before they are interleaved.
  size_t line_bytes() const { return tiles > 0 && is_quantized(form) ? padded_k : 0; }
};

/// Makes the rows of x what a kernel takes, in the context's scratch memory.
class RowMaker {
 public:
  /// `lines` [m][line_bytes()].
  RowMaker(IsaLevel isa, const RowShape& shape, const Source& source, std::byte* to, std::byte* lines,
           float* scales)
      : kernels_(cpu::table(isa)),
        packing_(cpu::pack_table(isa)),
        shape_(shape),
        form_(shape.form),
        source_(source),
        k_(shape.k),
        padded_k_(shape.padded_k),
        to_(to),
        lines_(lines),
        scales_(scales) {}

  /// Where rows are not interleaved.
  void make(size_t row) const {
    if (is_tiled(form_)) return scatter(row);
    std::byte* to = to_ + row * shape_.bytes();
    fill(row, to);
    if (form_ == RowForm::kInt8Sums) add_sums(to);
  }

  // Where they are: first the lines, if they are quantized, then the stretches, kPart inputs of a tile each.
  void make_line(size_t row) const { fill(row, lines_ + row * shape_.line_bytes()); }
  size_t num_stretches() const { return shape_.tiles * stretches_of_row(); }
  void interleave(size_t stretch) const {
    const size_t tile = stretch / stretches_of_row();
    const size_t k0 = stretch % stretches_of_row() * kPart;
    const size_t first = cpu::first_row(tile, shape_.tiles, source_.m);
    const size_t rows = cpu::first_row(tile + 1, shape_.tiles, source_.m) - first;
    const size_t unit = shape_.step() * element_bytes(form_);
    const size_t count = std::min(kPart, padded_k_ - k0);
    std::byte* to = to_ + first * shape_.bytes() + k0 * element_bytes(form_) * rows;
    alignas(kLine) std::byte parts[cpu::kMostInterleavedRows][kPart * sizeof(float)];
    const std::byte* lines[cpu::kMostInterleavedRows];
    for (size_t i = 0; i < rows; ++i) lines[i] = line_bytes_at(first + i, k0, count, parts[i]);
    if (unit == sizeof(uint32_t)) {
      packing_.interleave(lines, rows, count / shape_.step(), to);
    } else {
      for (size_t i = 0; i < rows; ++i) spread(lines[i], count / shape_.step(), to + i * unit, rows);
    }
  }

 private:
  size_t stretches_of_row() const { return (padded_k_ + kPart - 1) / kPart; }

  /// Steps of 8 bytes.
  static void spread(const std::byte* from, size_t count, std::byte* to, size_t stride) {
    constexpr size_t kUnit = sizeof(uint64_t);
    for (size_t i = 0; i < count; ++i) std::memcpy(to + i * stride * kUnit, from + i * kUnit, kUnit);
  }

  /// `count` inputs of a row from k0 on, in its form; maybe in `part`.
  const std::byte* line_bytes_at(size_t row, size_t k0, size_t count, std::byte* part) const {
    if (shape_.line_bytes() > 0) return lines_ + row * shape_.line_bytes() + k0;
    alignas(kLine) float gated[kPart];
    const size_t known = std::min(count, k_ - k0);
    const bool as_is = form_ == RowForm::kF32;
    const float* from = inputs(row, k0, known, as_is ? reinterpret_cast<float*>(part) : gated);
    if (as_is) return reinterpret_cast<const std::byte*>(from);
    convert(from, part, known);
    std::memset(part + known * element_bytes(form_), 0, (count - known) * element_bytes(form_));
    return part;
  }

  /// `count` inputs of a row from k0 on: where they lie, or in `part`.
  const float* inputs(size_t row, size_t k0, size_t count, float* part) const {
    const float* from = source_.x + row * source_.ldx + k0;
    if (source_.gated == nullptr) return from;
    source_.gated(from, from + k_, part, count);
    return part;
  }

  /// All of a row.
  const float* whole_row(size_t row) const {
    thread_local std::vector<float> gated;
    if (source_.gated != nullptr && gated.size() < k_) gated.resize(k_);
    return inputs(row, 0, k_, gated.data());
  }

  /// A row, padded with zeros.
  void fill(size_t row, std::byte* to) const {
    if (is_quantized(form_)) {
      scales_[row] = kernels_.quantize(whole_row(row), reinterpret_cast<int8_t*>(to), k_);
      if (form_ == RowForm::kUint8) add_128(to, k_);
    } else if (form_ == RowForm::kF32) {
      inputs(row, 0, k_, reinterpret_cast<float*>(to));
    } else {
      convert(whole_row(row), to, k_);
    }
    std::memset(to + k_ * element_bytes(form_), 0, (padded_k_ - k_) * element_bytes(form_));
  }

  /// `count` is no member here: bytes might alias it, and the loop would not be vectorised.
  static void add_128(std::byte* integers, size_t count) {
    for (size_t k = 0; k < count; ++k) integers[k] ^= std::byte{0x80};
  }

  /// Inputs that are not quantized.
  void convert(const float* from, std::byte* to, size_t count) const {
    const auto to_bf16 = kernels_.from_f32[cpu::float_index(DType::kBF16)];
    if (form_ == RowForm::kBF16) return to_bf16(from, to, count);
    uint16_t part[kPart];
    for (size_t k0 = 0; k0 < count; k0 += kPart) {
      const size_t some = std::min(kPart, count - k0);
      to_bf16(from + k0, part, some);
      kernels_.to_f32[cpu::float_index(DType::kBF16)](part, reinterpret_cast<float*>(to) + k0, some);
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

  /// A row into its tile of 16.
  void scatter(size_t row) const {
    const size_t tile = row / cpu::kTileRows;
    const size_t rows = std::min(cpu::kTileRows, source_.m - tile * cpu::kTileRows);
    std::byte* to = to_ + tile * cpu::kTileRows * padded_k_ * element_bytes(form_) +
                    row % cpu::kTileRows * cpu::kTileRowBytes;
    const size_t stride = rows * cpu::kTileRowBytes;
    if (form_ == RowForm::kBF16Tiles) {
      scatter_bf16(row, to, stride);
    } else {
      scatter_int8(row, to, stride);
    }
  }

  void scatter_bf16(size_t row, std::byte* to, size_t stride) const {
    constexpr size_t kStep = cpu::kTileRowBytes / sizeof(uint16_t);
    alignas(kLine) uint16_t part[kPart];
    alignas(kLine) float gated[kPart];
    for (size_t k0 = 0; k0 < padded_k_; k0 += kPart) {
      const size_t count = std::min(kPart, k_ - k0);
      const size_t padded = std::min(kPart, padded_k_ - k0);
      kernels_.from_f32[cpu::float_index(DType::kBF16)](inputs(row, k0, count, gated), part, count);
      std::fill(part + count, part + padded, uint16_t{0});
      for (size_t k = 0; k < padded; k += kStep, to += stride) {
        std::memcpy(to, part + k, cpu::kTileRowBytes);
      }
    }
  }

  void scatter_int8(size_t row, std::byte* to, size_t stride) const {
    thread_local std::vector<int8_t> line;
    line.assign(padded_k_, 0);
    scales_[row] = kernels_.quantize(whole_row(row), line.data(), k_);
    for (size_t k = 0; k < padded_k_; k += cpu::kTileRowBytes, to += stride) {
      std::memcpy(to, line.data() + k, cpu::kTileRowBytes);
    }
  }

  const cpu::KernelTable& kernels_;
  const cpu::PackTable& packing_;
  const RowShape& shape_;
  RowForm form_;
  Source source_;
  size_t k_;
  size_t padded_k_;
  std::byte* to_;
  std::byte* lines_;
  float* scales_;
};

size_t num_panels(const PackedMatrix& weights) { return (weights.n() + kPanelWidth - 1) / kPanelWidth; }

/// Where tiles cut K, so many panels' sums wait in a thread's memory: its share, in as many rounds as it
/// takes.
size_t waiting_panels(size_t panels, size_t threads) {
  const size_t rounds =
      (panels + threads * cpu::kMostWaitingPanels - 1) / (threads * cpu::kMostWaitingPanels);
  return (panels + threads * rounds - 1) / (threads * rounds);
}

/// What a matmul needs of the scratch memory: the rows' scales, the rows, their lines, room for each thread.
struct ScratchBytes {
  ScratchBytes(const RowShape& shape, const PackedMatrix& weights, size_t m, size_t num_threads)
      : scales(is_quantized(shape.form) ? rounded_up(m * sizeof(float), kLine) : 0),
        rows(shape.is_source() ? 0 : rounded_up(m * shape.bytes(), kLine)),
        lines(m * shape.line_bytes()),
        waiting(is_tiled(shape.form) ? waiting_panels(num_panels(weights), num_threads) : 0),
        sums(is_tiled(shape.form) ? cpu::tile_sums_bytes(m, shape.steps(), waiting) : 0),
        of_thread(sums + rounded_up(cpu::scratch_bytes(weights.format(), m, shape.padded_k), kLine)),
        all(scales + rows + rounded_up(lines, kLine) + num_threads * of_thread) {}

  size_t scales;
  size_t rows;
  size_t lines;
  size_t waiting;  // panels
  size_t sums;
  size_t of_thread;
  size_t all;
};

struct Scratch {
  Scratch(KernelContext& context, const ScratchBytes& bytes)
      : sums_bytes_(bytes.sums), thread_bytes_(bytes.of_thread) {
    context.scratch.reserve(bytes.all);
    scales = context.scratch.as<float>();
    rows = context.scratch.data() + bytes.scales;
    lines = rows + bytes.rows;
    threads_ = lines + rounded_up(bytes.lines, kLine);
  }
  float* sums(uint32_t thread) const { return reinterpret_cast<float*>(threads_ + thread * thread_bytes_); }
  std::byte* of_thread(uint32_t thread) const { return threads_ + thread * thread_bytes_ + sums_bytes_; }

  float* scales;
  std::byte* rows;
  std::byte* lines;

 private:
  std::byte* threads_;
  size_t sums_bytes_;
  size_t thread_bytes_;
};

/// The rows in their form.
Activations prepare(KernelContext& context, const RowShape& shape, const Scratch& scratch,
                    const Source& source) {
  if (shape.is_source()) return {source.x, source.ldx};
  const RowMaker maker(context.isa, shape, source, scratch.rows, scratch.lines, scratch.scales);
  const auto for_all = [&](size_t count, size_t elements, auto&& make) {
    const size_t grain = cpu::balanced_grain(context.pool, count, 16384 / (elements + 1) + 1);
    context.pool.parallel_for(count, grain, [&](size_t begin, size_t end, uint32_t) {
      for (size_t i = begin; i < end; ++i) make(i);
    });
  };
  if (shape.tiles == 0) {
    for_all(source.m, shape.k, [&](size_t row) { maker.make(row); });
  } else {
    if (is_quantized(shape.form)) for_all(source.m, shape.k, [&](size_t row) { maker.make_line(row); });
    for_all(maker.num_stretches(), kPart * (source.m / shape.tiles),
            [&](size_t stretch) { maker.interleave(stretch); });
  }
  return {scratch.rows, shape.bytes() / element_bytes(shape.form), scratch.scales};
}

const cpu::MatmulKernel& kernel_of(const KernelContext& context, const PackedMatrix& weights, size_t m) {
  const cpu::MatmulKernel& kernel = cpu::table(context.isa).matmul[static_cast<size_t>(weights.format())];
  return m < kernel.least_rows ? *kernel.few : kernel;
}

/// One tile of rows passes panels in twos: an even number, unless a thread had more to do then.
size_t grain_of_twos(size_t threads, size_t panels, size_t grain) {
  const auto most_of_thread = [&](size_t of_piece) {
    const size_t pieces = (panels + of_piece - 1) / of_piece;
    return (pieces + threads - 1) / threads * of_piece;
  };
  const size_t even = rounded_up(grain, 2);
  return most_of_thread(even) <= most_of_thread(grain) ? even : grain;
}

/// The panels of a piece of work.
size_t grain_of(const ThreadPool& pool, const RowShape& shape, size_t panels, size_t m) {
  const size_t panel_products = kPanelWidth * std::max<size_t>(shape.k, 1) * m;
  size_t grain = cpu::balanced_grain(pool, panels, kLeastProducts / panel_products + 1);
  if (shape.tiles > 0) grain = std::min(grain, std::max<size_t>(kMostProducts / panel_products, 1));
  if (!is_tiled(shape.form)) return grain;
  if (m <= cpu::kTileRows) return grain_of_twos(pool.num_threads(), panels, grain);
  const cpu::TileBlocks blocks = cpu::tile_blocks(m, shape.steps());
  if (blocks.rows >= m && blocks.steps == shape.steps()) return grain;
  // Each piece reads all rows once more: few pieces, and as many for each thread.
  return std::max(grain, waiting_panels(panels, pool.num_threads()));
}

void multiply(KernelContext& context, const PackedMatrix& weights, const Source& source, float* y, size_t ldy,
              const float* bias) {
  const size_t m = source.m;
  if (m == 0 || weights.n() == 0) return;
  const cpu::MatmulKernel& kernel = kernel_of(context, weights, m);
  const RowShape shape(kernel, weights.format(), weights.k(), m, source.gated != nullptr);
  const ScratchBytes bytes(shape, weights, m, context.pool.num_threads());
  const Scratch scratch(context, bytes);
  const Activations activations = prepare(context, shape, scratch, source);
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
  const size_t panels = num_panels(weights);
  const size_t grain = grain_of(context.pool, shape, panels, m);
  context.pool.parallel_shares(panels, grain, [&](size_t begin, size_t end, uint32_t thread) {
    cpu::MatmulArgs own = args;
    own.scratch = scratch.of_thread(thread);
    own.sums = scratch.sums(thread);
    own.waiting_panels = bytes.waiting;
    kernel.run(own, begin, end);
  });
}

}  // namespace

size_t matmul_scratch_bytes(const KernelContext& context, const PackedMatrix& weights, size_t m) {
  if (m == 0 || weights.n() == 0) return 0;
  const RowShape shape(kernel_of(context, weights, m), weights.format(), weights.k(), m, true);
  return ScratchBytes(shape, weights, m, context.pool.num_threads()).all;
}

void matmul(KernelContext& context, const PackedMatrix& weights, const float* x, size_t ldx, size_t m,
            float* y, size_t ldy, const float* bias) {
  multiply(context, weights, {x, ldx, m}, y, ldy, bias);
}

void matmul_gated(KernelContext& context, const PackedMatrix& weights, Gate gate, const float* gate_up,
                  size_t m, float* y, size_t ldy, const float* bias) {
  const cpu::KernelTable& table = cpu::table(context.isa);
  const cpu::Gated gated = gate == Gate::kSilu ? table.swiglu : table.geglu;
  multiply(context, weights, {gate_up, 2 * weights.k(), m, gated}, y, ldy, bias);
}

}  // namespace quire::kernels
