#pragma once

#include "kernels/cpu/pack_table.h"

// What the sources that pack define for each ISA; constant-initialised, as in tables.h.
namespace quire::kernels::cpu {

namespace avx2 {
extern const PackTable kPackTable;
}
namespace avx512 {
extern const PackTable kPackTable;
}

}  // namespace quire::kernels::cpu
