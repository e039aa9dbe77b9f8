#pragma once

#include "kernels/cpu/x86/amx_tiles.h"
#include "kernels/cpu/x86/matmul_kernels.h"
#include "kernels/cpu/x86/vec_avx512.h"

namespace quire::kernels::cpu::amx {

using avx512::IntVec;
using avx512::Vec;

inline constexpr size_t kLanes = 16;

/// The two row tiles that are computed together; the second may be empty.
struct Rows {
  size_t begin;
  size_t first;
  size_t second;
};

/// Whether rows of results are written beside tiles, and whether past the caches.
enum class Write { kNone, kStore, kStream };

/// Results::Writer where there is nothing to write.
struct NoWriter {
  NoWriter(const auto& /*of*/, size_t /*rows*/) {}
  template <Write kWrite>
  QUIRE_INLINE void write(size_t /*half*/) {}
};

/// Sums that are complete: they go to y row by row, while the tiles of the next pair are multiplied. The
/// vectors' instructions cost little time beside those of tiles, but all of it behind them.
template <class Dot>
class Results {
 public:
  /// `streams`: y is more than the caches keep until it is read, so that its lines need not come to them
  /// first. Whole vectors of it must be aligned then.
  Results(const MatmulArgs& args, bool streams) : args_(args), streams_(streams) {}
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  ~Results() {
    write_all();
    if (streams_) _mm_sfence();
  }

  /// Where a tile can be stored that nobody reads, [kTileRows][kTileRowBytes].
  std::byte* dump() { return dump_; }

  /// Room for the sums of a pair, [2 * kTileRows][kPanelWidth].
  float* room() { return sums_[current_ ^ 1U]; }
  /// The sums in the room are complete: their rows are written next, and the other room is free.
  void take(const Rows& rows, size_t column) {
    write_all();
    current_ ^= 1U;
    next_ = 0;
    count_ = rows.first + rows.second;
    row_ = rows.begin;
    column_ = column;
  }
  QUIRE_INLINE void write_one() {
    if (next_ == count_) return;
    const float* sums = sums_[current_] + next_ * kPanelWidth;
    write_half(sums, column_);
    if (column_ + kLanes < args_.n) write_half(sums + kLanes, column_ + kLanes);
    ++next_;
  }

  /// How several rows can be written half by half. If there are fewer, they are written now.
  Write next_rows(size_t rows) {
    if (next_ == count_) return Write::kNone;
    if (count_ - next_ < rows || column_ + kPanelWidth > args_.n) {
      write_all();
      return Write::kNone;
    }
    return streams_ ? Write::kStream : Write::kStore;
  }
  /// Writes rows that next_rows() has found, and keeps in registers what they have in common.
  class Writer {
   public:
    explicit Writer(Results& of, size_t rows)
        : sums_(of.sums_[of.current_] + of.next_ * kPanelWidth),
          y_(of.args_.y + (of.row_ + of.next_) * of.args_.ldy + of.column_),
          ldy_(of.args_.ldy),
          biased_(of.args_.bias != nullptr) {
      if constexpr (Dot::kScaled) x_scales_ = of.args_.x_scales + of.row_ + of.next_;
      for (size_t i = 0; i < 2; ++i) {
        const size_t column = of.column_ + i * kLanes;
        if constexpr (Dot::kScaled) w_scales_[i] = Vec::load(of.args_.w_scales + column);
        if (biased_) bias_[i] = Vec::load(of.args_.bias + column);
      }
      of.next_ += rows;
    }
    /// The left half of a row, then the right one.
    template <Write kWrite>
    QUIRE_INLINE void write(size_t half) {
      const float* sums = sums_ + half * kLanes;
      Vec result = Vec::zero();
      if constexpr (Dot::kScaled) {
        const Vec sum = IntVec::to_float(IntVec::load(sums));
        result = Vec::mul(Vec::mul(sum, Vec::set1(*x_scales_)), w_scales_[half]);
      } else {
        result = Vec::load(sums);
      }
      if (biased_) result = Vec::add(result, bias_[half]);
      if constexpr (kWrite == Write::kStream) {
        Vec::stream(y_ + half * kLanes, result);
      } else {
        Vec::store(y_ + half * kLanes, result);
      }
      if (half == 0) return;
      sums_ += kPanelWidth;
      y_ += ldy_;
      if constexpr (Dot::kScaled) ++x_scales_;
    }

   private:
    const float* sums_;
    float* y_;
    size_t ldy_;
    const float* x_scales_ = nullptr;
    Vec w_scales_[2] = {Vec::zero(), Vec::zero()};
    Vec bias_[2] = {Vec::zero(), Vec::zero()};
    bool biased_;
  };

 private:
  void write_all() {
    while (next_ < count_) write_one();
  }

  QUIRE_INLINE void write_half(const float* sums, size_t column) {
    const size_t row = row_ + next_;
    const size_t columns = args_.n - column;
    const bool whole = columns >= kLanes;
    Vec result = Vec::zero();
    if constexpr (Dot::kScaled) {
      const Vec sum = IntVec::to_float(IntVec::load(sums));
      result = Vec::mul(Vec::mul(sum, Vec::set1(args_.x_scales[row])), Vec::load(args_.w_scales + column));
    } else {
      result = Vec::load(sums);
    }
    if (args_.bias != nullptr) {
      const float* bias = args_.bias + column;
      result = Vec::add(result, whole ? Vec::load(bias) : Vec::load(bias, columns));
    }
    float* y = args_.y + row * args_.ldy + column;
    if (!whole) return Vec::store(y, result, columns);
    if (streams_) return Vec::stream(y, result);
    Vec::store(y, result);
  }

  const MatmulArgs& args_;
  const bool streams_;
  size_t next_ = 0;
  size_t count_ = 0;
  size_t row_ = 0;
  size_t column_ = 0;
  size_t current_ = 0;
  alignas(64) std::byte dump_[kTileRows * kTileRowBytes];
  alignas(64) float sums_[2][2 * kTileRows * kPanelWidth];
};

}  // namespace quire::kernels::cpu::amx
