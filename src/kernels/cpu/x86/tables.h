#pragma once

#include "kernels/cpu/kernel_table.h"

// What the sources of each ISA define. Constant-initialised: nothing of them runs before the machine was
// asked.
namespace quire::cpu {

using MatmulPieces = void (*)(const MatmulArgs& args, size_t first_panel, size_t last_panel);

namespace avx2 {
extern const KernelTable kTable;
}
namespace avx512 {
extern const KernelTable kTable;
}
namespace avx512_bf16 {
extern const MatmulPieces kMatmulBf16;
}

}  // namespace quire::cpu
