#pragma once

#include "kernels/cpu/x86/amx_products.h"
#include "kernels/cpu/x86/vec_avx512.h"

// Where the weights of the matmul with tiles are, and what is asked for while they are multiplied.
namespace quire::kernels::cpu::amx {

// Weights come from memory while the tiles of rows pass those before them. A pair of tiles without others
// reads ahead. Of more pairs, each asks for its share of what comes next, of several places in turn: the
// machine itself fetches what follows in each of them, so that memory is kept busy (see
// docs/measurements/cpu-amx-peers.md). A tile without others passes two panels at a time.
inline constexpr size_t kAhead = 1024;
inline constexpr size_t kMostPlaceBits = 3;
inline constexpr size_t kMostPlaces = 1 << kMostPlaceBits;
inline constexpr size_t kStepLines = kStepBytes / kLineBytes;
// Two pairs pass so many steps of a panel before the next ones, so that what comes next stays in L2.
inline constexpr size_t kStepsOfTwo = 32;

// Not std::min: code for this ISA alone must not be taken elsewhere.
QUIRE_INLINE constexpr size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/// A stretch of K of one panel: `w` at its first step.
struct Stretch {
  const std::byte* w;
  size_t step;
  size_t count;
  bool last;
  float* sums;   // where the sums of the next pair wait between stretches, a tile after the other
  bool is_read;  // for the first time, from memory
  // Else, with each step so many lines are asked for of what is read later: of 2^place_bits places in turn,
  // which are `apart`.
  const std::byte* ahead;
  size_t lines;
  size_t place_bits;
  size_t apart;

  /// The i-th line that is asked for with a step, from that of the first step on.
  QUIRE_INLINE size_t offset(size_t i) const {
    const size_t place = i & ((size_t{1} << place_bits) - 1);
    return place * apart + (i >> place_bits) * kLineBytes;
  }
  QUIRE_INLINE size_t bytes_of_step() const { return (lines >> place_bits) * kLineBytes; }
};

/// Weights as tiles take them, where they lie.
class Stored {
 public:
  static constexpr bool kInMemory = true;
  Stored(const MatmulArgs& args, size_t pairs)
      : args_(args), pairs_(pairs), place_bits_(place_bits_of(pairs)), lines_(lines_of(pairs, place_bits_)) {}

  /// Of so many steps that are left, which two pairs pass in stretches of nearly the same length.
  size_t chunk(size_t steps) const {
    const size_t stretches = pairs_ == 2 ? (steps + kStepsOfTwo - 1) / kStepsOfTwo : 1;
    return stretches < 2 ? steps : (steps + stretches - 1) / stretches;
  }
  /// `next`: what is read after it; null if nothing is.
  void prepare(size_t panel, const std::byte* next, Stretch& at) {
    at.w = args_.panels + panel * args_.panel_bytes + at.step * kStepBytes;
    at.is_read = pairs_ == 1;
    at.ahead = next;
    at.lines = next == nullptr || at.is_read ? 0 : lines_;
    at.place_bits = place_bits_;
    at.apart = (lines_ >> place_bits_) * at.count * kLineBytes;
    unasked_ = kStepLines * at.count;
  }
  /// After a pair.
  void proceed(Stretch& at) {
    const size_t asked = at.lines * at.count;
    at.ahead += asked * kLineBytes;
    unasked_ -= smaller(unasked_, asked);
    if (unasked_ == 0) at.lines = 0;
  }

 private:
  static size_t share_of(size_t pairs) { return (kStepLines + pairs - 1) / pairs; }
  static size_t place_bits_of(size_t pairs) {
    const size_t share = share_of(pairs);
    return share > 4 ? kMostPlaceBits : share > 2 ? 2 : share - 1;
  }
  /// With each step, of each pair: its share in whole rounds of the places.
  static size_t lines_of(size_t pairs, size_t place_bits) {
    const size_t rounds = (share_of(pairs) + (size_t{1} << place_bits) - 1) >> place_bits;
    return rounds << place_bits;
  }

  const MatmulArgs& args_;
  size_t pairs_;
  size_t place_bits_;
  size_t lines_;
  size_t unasked_ = 0;  // lines of what comes next
};

/// Int4, which is expanded to bytes, some steps at a time: with few rows they stay in L1, with many each tile
/// has enough to do.
class Expanded {
 public:
  static constexpr bool kInMemory = false;
  Expanded(const MatmulArgs& args, size_t pairs)
      : args_(args),
        few_(pairs == 1),
        apart_(lines_of((args.panel_bytes + kMostPlaces - 1) / kMostPlaces) * kLineBytes) {}

  size_t chunk(size_t steps) const { return smaller(steps, few_ ? kStepsOfFew : kStepsOfMany); }
  void prepare(size_t panel, const std::byte* /*next*/, Stretch& at) const {
    const std::byte* from = args_.panels + panel * args_.panel_bytes + at.step * 2 * kInt4GroupBytes;
    const std::byte* behind = args_.panels + (panel + 1) * args_.panel_bytes;
    size_t line = lines_of(2 * at.step * kInt4GroupBytes);
    for (size_t i = 0; i < 2 * at.count; ++i) {
      const size_t last = lines_of(((2 * at.step) + i + 1) * kInt4GroupBytes);
      for (; line < last; ++line) {  // of the next panel, as many as are read of this one
        __builtin_prefetch(behind + line % kMostPlaces * apart_ + line / kMostPlaces * kLineBytes, 0, 2);
      }
      avx512::Int4::group(from + i * kInt4GroupBytes,
                          reinterpret_cast<int8_t*>(args_.scratch) + i * kTileBytes);
    }
    at.w = args_.scratch;
    at.is_read = false;
    at.ahead = args_.scratch;
    at.lines = 0;
    at.place_bits = 0;
    at.apart = 0;
  }
  void proceed(Stretch& /*at*/) const {}

 private:
  static constexpr size_t kStepsOfFew = 8;
  static constexpr size_t kStepsOfMany = 64;
  static constexpr size_t lines_of(size_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes; }

  const MatmulArgs& args_;
  bool few_;
  size_t apart_;  // of the places in a panel
};

}  // namespace quire::kernels::cpu::amx
