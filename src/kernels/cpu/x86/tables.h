#pragma once

#include "kernels/cpu/kernel_table.h"

// The tables that the sources of each ISA define. Constant-initialized, so that none of their code runs
// before the machine's features were checked.
namespace quire::kernels::cpu {

// kTable has no matmuls for ggml formats; kBlocks has these, in the order of WeightFormat.
namespace avx2 {
extern const KernelTable kTable;
extern const MatmulKernel kBlocks[4];
}  // namespace avx2
namespace avx2_vnni {
extern const MatmulKernel kInt8;
extern const MatmulKernel kInt4;
extern const MatmulKernel kBlocks[4];
extern const AttentionKernel kInt8Attention;
}  // namespace avx2_vnni
namespace avx512 {
/// Whether AVX-512 and AMX are compiled in; if not, their tables are empty (cpu/no_avx512).
extern const bool kCompiled;
extern const KernelTable kTable;
}  // namespace avx512
namespace avx512_vnni {
extern const MatmulKernel kInt8;
extern const MatmulKernel kInt4;
extern const MatmulKernel kBlocks[4];
extern const AttentionKernel kInt8Attention;
// For the level of VDPBF16PS, which Zen 4 on prefers, and Intel's do not (native_levels).
extern const MatmulKernel kScaledInt4;
// For machines that have tiles: int4 with few rows, and blocks.
extern const MatmulKernel kFewInt4;
extern const MatmulKernel kNearBlocks[4];
}  // namespace avx512_vnni
namespace avx512_bf16 {
extern const MatmulKernel kBf16;
extern const AttentionKernel kBf16Attention;
extern const AttentionKernel kInt8Attention;
}  // namespace avx512_bf16
namespace amx {
extern const MatmulKernel kBf16;
extern const MatmulKernel kInt8;
extern const MatmulKernel kInt4;
extern const AttentionKernel kBf16Attention;
extern const AttentionKernel kInt8Attention;
}  // namespace amx

}  // namespace quire::kernels::cpu
