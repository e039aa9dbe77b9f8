#pragma once

#include <cstddef>
#include <cstdint>

// The functions with which one ISA level packs a matrix (kernel_table.h has the layouts). All levels give the
// same bytes. The include rule of kernel_table.h applies to this header too.
namespace quire::kernels::cpu {

struct PackTable {
  /// Transposes `num_rows` rows of `units` times 4 bytes into steps of `num_rows` lanes: lane `row` of step
  /// `unit` is unit `unit` of rows[row], or zeros if rows[row] is null. Reads no byte after the last unit of
  /// a row.
  void (*interleave)(const std::byte* const* rows, size_t num_rows, size_t units, std::byte* to);

  /// One panel of int4 from `rows` [32][k], k a multiple of 64: scale, group scales and integers as in
  /// quantize_int4, and offsets as in PackedMatrix. `scratch`: [k].
  void (*int4_panel)(const float* rows, size_t k, float* scratch, std::byte* to, float* scales,
                     int32_t* offsets);
};

}  // namespace quire::kernels::cpu
