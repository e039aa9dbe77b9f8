#pragma once

#include <cstddef>
#include <cstdint>

// What one ISA level does to pack a matrix (the layouts are in kernel_table.h). All levels give the same
// bytes. Like kernel_table.h, this header is all that a file compiled for an ISA includes besides its own.
namespace quire::kernels::cpu {

struct PackTable {
  /// Transposes `num_rows` rows of `units` times 4 bytes into steps of so many lanes: lane `row` of step
  /// `unit` is unit `unit` of rows[row], zeros where rows[row] is null. No byte behind a row's last unit is
  /// read.
  void (*interleave)(const std::byte* const* rows, size_t num_rows, size_t units, std::byte* to);

  /// One panel of int4 from `rows` [32][k], k a multiple of 64: scale, group scales and integers as
  /// quantize_int4 finds them, and offsets as PackedMatrix has them. `scratch`: [k].
  void (*int4_panel)(const float* rows, size_t k, float* scratch, std::byte* to, float* scales,
                     int32_t* offsets);
};

}  // namespace quire::kernels::cpu
