#pragma once

#include "kernels/cpu/pack_table.h"

// The tables for packing that each ISA defines; constant-initialized, as in tables.h.
namespace quire::kernels::cpu {

namespace avx2 {
extern const PackTable kPackTable;
}
namespace avx512 {
extern const PackTable kPackTable;
}

}  // namespace quire::kernels::cpu
