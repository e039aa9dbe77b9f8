#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/cpu/table.h"
#include "kernels/matmul.h"
#include "kernels/pack_blocks.h"
#include "kernels/quantize.h"

// Packing: from rows of a checkpoint to the panels of kernels/cpu/kernel_table.h.
namespace quire::kernels {
namespace {

using cpu::kPanelWidth;

constexpr size_t kPackChunk = 256;  // k at a time: 32 rows of it stay in L1 while they are transposed
constexpr size_t kPieceBytes = size_t{2} << 20;  // of weights, that a thread takes at a time

DType dtype_of(WeightFormat format) {
  if (format == WeightFormat::kBF16) return DType::kBF16;
  return format == WeightFormat::kF16 ? DType::kF16 : DType::kF32;
}

/// Without the sign the order of floats is that of their bits, and those that are not finite come last.
template <class Bits>
bool all_finite(const std::byte* row, size_t count, Bits exponent) {
  constexpr Bits kNoSign = static_cast<Bits>(~(Bits{1} << (8 * sizeof(Bits) - 1)));
  Bits most = 0;
  for (size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, row + i * sizeof(bits), sizeof(bits));
    most = std::max(most, static_cast<Bits>(bits & kNoSign));
  }
  return most < exponent;
}

bool all_finite(const std::byte* row, size_t count, DType dtype) {
  if (dtype == DType::kF32) return all_finite<int32_t>(row, count, 0x7f800000);
  return all_finite<int16_t>(row, count, dtype == DType::kF16 ? 0x7c00 : 0x7f80);
}

/// The matrices that are packed as one.
struct Parts {
  std::span<const TensorView> all;

  size_t rows(size_t part) const { return static_cast<size_t>(all[part].shape[0]); }

  /// Calls body(part, first, count) for what of [begin, end) lies in each part, in its own rows.
  template <class Body>
  void for_rows(size_t begin, size_t end, const Body& body) const {
    for (size_t part = 0; part < all.size() && begin < end; ++part) {
      const size_t there = rows(part);
      if (begin < there) body(part, begin, std::min(end, there) - begin);
      begin -= std::min(begin, there);
      end -= std::min(end, there);
    }
  }
};

size_t bytes_of_row(const TensorView& part) {
  return static_cast<size_t>(part.shape[1]) * dtype_bytes(part.dtype);
}

/// What packs one panel after the other; one a thread.
class Packer {
 public:
  Packer(IsaLevel isa, const Parts& parts, size_t n, size_t k, WeightFormat format)
      : kernels_(cpu::table(isa)),
        pack_(cpu::pack_table(isa)),
        parts_(parts),
        format_(format),
        dtype_(dtype_of(format)),
        n_(n),
        k_(k),
        padded_k_(cpu::padded_k(format, k)) {
    if (format == WeightFormat::kInt8) {
      values_.resize(k);
      integers_.resize(kPanelWidth * padded_k_);
    }
    if (format == WeightFormat::kInt4) {
      values_.resize(kPanelWidth * padded_k_);
      scratch_.resize(padded_k_);
    }
  }

  /// False if a weight is not finite.
  bool pack(size_t panel, std::byte* to, float* scales, int32_t* offsets) {
    find_rows(panel);
    if (is_ggml(format_)) return pack_blocks(pack_, format_, rows_, k_, to);
    if (format_ < WeightFormat::kInt8) return pack_floats(to);
    if (format_ == WeightFormat::kInt8) {
      pack_int8(to, scales, offsets);
    } else {
      pack_int4(to, scales, offsets);
    }
    return std::all_of(scales, scales + kPanelWidth, [](float scale) { return std::isfinite(scale); });
  }

 private:
  void find_rows(size_t panel) {
    std::fill_n(rows_, kPanelWidth, nullptr);
    size_t at = 0;
    parts_.for_rows(panel * kPanelWidth, std::min(n_, (panel + 1) * kPanelWidth),
                    [&](size_t part, size_t first, size_t count) {
                      const TensorView& view = parts_.all[part];
                      const size_t row_bytes = bytes_of_row(view);
                      for (size_t row = first; row < first + count; ++row, ++at) {
                        rows_[at] = view.data + row * row_bytes;
                        dtypes_[at] = view.dtype;
                      }
                    });
    num_rows_ = at;
  }

  bool pack_floats(std::byte* to) {
    bool finite = true;
    bool as_they_are = true;
    for (size_t row = 0; row < num_rows_; ++row) {
      finite = all_finite(rows_[row], k_, dtypes_[row]) && finite;
      as_they_are = as_they_are && dtypes_[row] == dtype_;
    }
    if (as_they_are) {
      lay_out(rows_, k_, to);
      return finite;
    }
    const size_t bytes = dtype_bytes(dtype_);
    alignas(64) std::byte lines[kPanelWidth][kPackChunk * sizeof(float)];
    const std::byte* chunk[kPanelWidth] = {};
    for (size_t k0 = 0; k0 < k_; k0 += kPackChunk) {
      const size_t count = std::min(kPackChunk, k_ - k0);
      for (size_t row = 0; row < num_rows_; ++row) {
        convert(row, k0, count, lines[row]);
        chunk[row] = lines[row];
      }
      lay_out(chunk, count, to + k0 * kPanelWidth * bytes);
    }
    return finite;
  }

  /// `count` values of a row from k0 on as dtype_.
  void convert(size_t row, size_t k0, size_t count, std::byte* to) const {
    const std::byte* from = rows_[row] + k0 * dtype_bytes(dtypes_[row]);
    if (dtypes_[row] == dtype_) {
      std::memcpy(to, from, count * dtype_bytes(dtype_));
      return;
    }
    float values[kPackChunk];
    kernels_.to_f32[cpu::float_index(dtypes_[row])](from, values, count);
    kernels_.from_f32[cpu::float_index(dtype_)](values, to, count);
  }

  /// `count` values of dtype_ of each row, from the begin of a step on.
  void lay_out(const std::byte* const* rows, size_t count, std::byte* to) const {
    if (dtype_ == DType::kF32) return pack_.interleave(rows, kPanelWidth, count, to);
    if (dtype_ == DType::kBF16) return interleave_pairs(rows, 0, count, to);
    // f16 has the rows of a step side by side, and a step is one k.
    alignas(64) uint32_t pairs[kPackChunk / 2][kPanelWidth];
    auto* steps = reinterpret_cast<uint16_t*>(to);
    for (size_t k0 = 0; k0 < count; k0 += kPackChunk) {
      const size_t here = std::min(kPackChunk, count - k0);
      interleave_pairs(rows, k0, here, reinterpret_cast<std::byte*>(pairs));
      for (size_t k = 0; k < here; ++k) {
        uint16_t* step = steps + (k0 + k) * kPanelWidth;
        const int shift = k % 2 == 0 ? 0 : 16;
        for (size_t row = 0; row < kPanelWidth; ++row) {
          step[row] = static_cast<uint16_t>(pairs[k / 2][row] >> shift);
        }
      }
    }
  }

  /// Values of 2 bytes, two a step; the second of the last pair may be none.
  void interleave_pairs(const std::byte* const* rows, size_t first, size_t count, std::byte* to) const {
    const std::byte* begin[kPanelWidth] = {};
    for (size_t row = 0; row < num_rows_; ++row) begin[row] = rows[row] + first * 2;
    pack_.interleave(begin, kPanelWidth, count / 2, to);
    if (count % 2 == 0) return;
    uint16_t last[kPanelWidth][2] = {};
    for (size_t row = 0; row < num_rows_; ++row) {
      std::memcpy(last[row], begin[row] + (count - 1) * 2, 2);
      begin[row] = reinterpret_cast<const std::byte*>(last[row]);
    }
    pack_.interleave(begin, kPanelWidth, 1, to + count / 2 * kPanelWidth * 4);
  }

  void pack_int8(std::byte* to, float* scales, int32_t* offsets) {
    const std::byte* lines[kPanelWidth] = {};
    for (size_t row = 0; row < num_rows_; ++row) {
      int8_t* line = integers_.data() + row * padded_k_;
      lines[row] = reinterpret_cast<const std::byte*>(line);
      kernels_.to_f32[cpu::float_index(dtypes_[row])](rows_[row], values_.data(), k_);
      scales[row] = kernels_.quantize(values_.data(), line, k_);
      if (!std::isfinite(scales[row])) std::fill_n(line, k_, int8_t{0});
      int32_t sum = 0;
      for (size_t k = 0; k < k_; ++k) sum += line[k];
      offsets[row] = 128 * sum;
    }
    pack_.interleave(lines, kPanelWidth, padded_k_ / 4, to);
  }

  void pack_int4(std::byte* to, float* scales, int32_t* offsets) {
    for (size_t row = 0; row < kPanelWidth; ++row) {
      float* line = values_.data() + row * padded_k_;
      if (row < num_rows_) {
        kernels_.to_f32[cpu::float_index(dtypes_[row])](rows_[row], line, k_);
      } else {
        std::fill_n(line, k_, 0.0F);
      }
    }
    pack_.int4_panel(values_.data(), padded_k_, scratch_.data(), to, scales, offsets);
  }

  const cpu::KernelTable& kernels_;
  const cpu::PackTable& pack_;
  const Parts& parts_;
  WeightFormat format_;
  DType dtype_;  // of the panel, if it is of floats
  size_t n_;
  size_t k_;
  size_t padded_k_;
  const std::byte* rows_[kPanelWidth] = {};  // of the panel at hand, null behind the last
  DType dtypes_[kPanelWidth] = {};
  size_t num_rows_ = 0;
  std::vector<float> values_;     // int8: [k], int4: [32][padded k]; the padding stays 0
  std::vector<float> scratch_;    // int4
  std::vector<int8_t> integers_;  // int8: [32][padded k]
};

constexpr bool has_output_scales(WeightFormat format) { return is_integer(format) && !is_ggml(format); }

size_t panels_of(size_t n) { return (n + kPanelWidth - 1) / kPanelWidth; }

void check_parts(std::span<const TensorView> parts, WeightFormat format) {
  if (parts.empty()) throw Error("a weight matrix of no parts");
  for (const TensorView& part : parts) {
    if (is_ggml(format) ? part.dtype != DType::kU8 : !is_float(part.dtype)) {
      throw Error(fmt::format("a weight matrix of {} cannot be computed with as {}", dtype_name(part.dtype),
                              weight_format_name(format)));
    }
    if (part.shape.size() != 2 || part.shape[0] < 0 || part.shape[1] < 0) {
      throw Error(fmt::format("a weight matrix has 2 dimensions, not {}", part.shape.size()));
    }
    if (part.shape[1] != parts[0].shape[1]) {
      throw Error(
          fmt::format("a weight matrix of parts of {} and of {} inputs", parts[0].shape[1], part.shape[1]));
    }
  }
}

size_t inputs_of(std::span<const TensorView> parts, WeightFormat format) {
  check_parts(parts, format);
  const auto width = static_cast<size_t>(parts[0].shape[1]);
  if (!is_ggml(format)) return width;
  const GgmlBlock block = ggml_block(format);
  if (width % block.bytes != 0) {
    throw Error(fmt::format("rows of {} bytes are no blocks of {}", width, weight_format_name(format)));
  }
  return width / block.bytes * block.values;
}

size_t outputs_of(std::span<const TensorView> parts, WeightFormat format) {
  check_parts(parts, format);
  size_t n = 0;
  for (const TensorView& part : parts) n += static_cast<size_t>(part.shape[0]);
  return n;
}

}  // namespace

size_t PackedMatrix::bytes_of(size_t n, size_t k, WeightFormat format) {
  const size_t outputs = panels_of(n) * kPanelWidth;
  const size_t beside = has_output_scales(format) ? outputs * (sizeof(float) + sizeof(int32_t)) : 0;
  return panels_of(n) * cpu::panel_bytes(format, k) + beside;
}

PackedMatrix::PackedMatrix(size_t n, size_t k, WeightFormat format)
    : n_(n),
      k_(k),
      format_(format),
      panels_bytes_(panels_of(n) * cpu::panel_bytes(format, k)),
      num_bytes_(bytes_of(n, k, format)) {}

PackedMatrix::PackedMatrix(size_t n, size_t k, WeightFormat format, const std::byte* bytes, bool finite)
    : PackedMatrix(n, k, format) {
  data_ = bytes;
  finite_ = finite;
}

PackedMatrix::PackedMatrix(KernelContext& context, const TensorView& weights, WeightFormat format)
    : PackedMatrix(context, std::span(&weights, 1), format) {}

PackedMatrix::PackedMatrix(KernelContext& context, std::span<const TensorView> parts, WeightFormat format,
                           const RowsRead& done)
    : PackedMatrix(outputs_of(parts, format), inputs_of(parts, format), format) {
  own_ = Buffer::lasting(num_bytes_);
  data_ = own_.data();
  const Parts rows{parts};
  const size_t panel_bytes = cpu::panel_bytes(format, k_);
  auto* scales = reinterpret_cast<float*>(own_.data() + panels_bytes_);
  auto* offsets = reinterpret_cast<int32_t*>(own_.data() + (panels_bytes_ + num_bytes_) / 2);
  std::vector<Packer> packers(context.pool.num_threads(), Packer(context.isa, rows, n_, k_, format));
  std::atomic<bool> finite = true;
  const size_t source_bytes = kPanelWidth * bytes_of_row(parts[0]);
  const size_t panels = panels_of(n_);
  const size_t grain =
      std::min(1 + kPieceBytes / (source_bytes + 1), cpu::balanced_grain(context.pool, panels, 1));
  context.pool.parallel_for(panels, grain, [&](size_t begin, size_t end, uint32_t thread) {
    for (size_t panel = begin; panel < end; ++panel) {
      const size_t beside = has_output_scales(format) ? panel * kPanelWidth : 0;
      if (!packers[thread].pack(panel, own_.data() + panel * panel_bytes, scales + beside,
                                offsets + beside)) {
        finite = false;
      }
    }
    if (done) rows.for_rows(begin * kPanelWidth, std::min(n_, end * kPanelWidth), done);
  });
  finite_ = finite;
}

}  // namespace quire::kernels
