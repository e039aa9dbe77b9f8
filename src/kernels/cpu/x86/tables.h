#pragma once

#include "kernels/cpu/kernel_table.h"

// What the sources of each ISA define. Constant-initialised: nothing of them runs before the machine was
// asked.
namespace quire::kernels::cpu {

// kTable has no matmuls of ggml's blocks; kBlocks are those, in the order of WeightFormat.
namespace avx2 {
extern const KernelTable kTable;
extern const MatmulKernel kBlocks[4];
}  // namespace avx2
namespace avx512 {
extern const KernelTable kTable;
}
namespace avx512_vnni {
extern const MatmulKernel kInt8;
extern const MatmulKernel kInt4;
extern const MatmulKernel kBlocks[4];
}  // namespace avx512_vnni
namespace avx512_bf16 {
extern const MatmulKernel kBf16;
}
namespace amx {
extern const MatmulKernel kBf16;
extern const MatmulKernel kInt8;
extern const MatmulKernel kInt4;
}  // namespace amx

}  // namespace quire::kernels::cpu
