#include "kernels/cpu/x86/tables.h"

#include "kernels/cpu/x86/pack_tables.h"

// In the place of the sources for AVX-512 and AMX. No level refers to these tables, as no level runs.
namespace quire::kernels::cpu {

namespace avx512 {
extern const bool kCompiled = false;
extern const KernelTable kTable = {};
extern const PackTable kPackTable = {};
}  // namespace avx512
namespace avx512_vnni {
extern const MatmulKernel kInt8 = {};
extern const MatmulKernel kInt4 = {};
extern const MatmulKernel kBlocks[4] = {};
extern const AttentionKernel kInt8Attention = nullptr;
extern const MatmulKernel kScaledInt4 = {};
extern const MatmulKernel kFewInt4 = {};
extern const MatmulKernel kNearBlocks[4] = {};
}  // namespace avx512_vnni
namespace avx512_bf16 {
extern const MatmulKernel kBf16 = {};
extern const AttentionKernel kBf16Attention = nullptr;
extern const AttentionKernel kInt8Attention = nullptr;
}  // namespace avx512_bf16
namespace amx {
extern const MatmulKernel kBf16 = {};
extern const MatmulKernel kInt8 = {};
extern const MatmulKernel kInt4 = {};
extern const AttentionKernel kBf16Attention = nullptr;
extern const AttentionKernel kInt8Attention = nullptr;
}  // namespace amx

}  // namespace quire::kernels::cpu
