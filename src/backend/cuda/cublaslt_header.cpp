// Holds the declarations of cublaslt.h against cuBLAS's own header. Compiled only by `./dev build cuda`.
#include <cublasLt.h>
#include <type_traits>

#include "backend/cuda/cublaslt.h"

namespace quire::backend::cuda::lt {

static_assert(kSuccess == CUBLAS_STATUS_SUCCESS && kInvalidValue == CUBLAS_STATUS_INVALID_VALUE &&
              kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(int{kRealF32} == CUDA_R_32F && int{kRealF16} == CUDA_R_16F && int{kRealBF16} == CUDA_R_16BF);
static_assert(int{kComputeF32} == CUBLAS_COMPUTE_32F);
static_assert(int{kAsItIs} == CUBLAS_OP_N && int{kTransposed} == CUBLAS_OP_T);
static_assert(int{kPlain} == CUBLASLT_EPILOGUE_DEFAULT && int{kAddBias} == CUBLASLT_EPILOGUE_BIAS);
static_assert(int{kTransA} == CUBLASLT_MATMUL_DESC_TRANSA && int{kTransB} == CUBLASLT_MATMUL_DESC_TRANSB &&
              int{kEpilogue} == CUBLASLT_MATMUL_DESC_EPILOGUE &&
              int{kBiasPointer} == CUBLASLT_MATMUL_DESC_BIAS_POINTER &&
              int{kBiasDataType} == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
static_assert(int{kMaxWorkspace} == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              int{kReductionSchemes} == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(int{kSplitK} == CUBLASLT_ALGO_CONFIG_SPLITK_NUM &&
              int{kReduction} == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME &&
              CUBLASLT_REDUCTION_SCHEME_NONE == 0);
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(Heuristic, workspace) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(Heuristic, status) == offsetof(cublasLtMatmulHeuristicResult_t, state) &&
              offsetof(Heuristic, waves) == offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));
/// Enums and handles have other names there, so only the number and sizes of arguments are compared.
template <class... A, class... B>
constexpr bool same_arguments(Status (*)(A...), cublasStatus_t (*)(B...)) {
  return sizeof...(A) == sizeof...(B) && ((sizeof(A) == sizeof(B)) && ...);
}
constexpr Api kApi{};
static_assert(same_arguments(kApi.Create, cublasLtCreate) && same_arguments(kApi.Destroy, cublasLtDestroy) &&
              same_arguments(kApi.MatrixLayoutCreate, cublasLtMatrixLayoutCreate) &&
              same_arguments(kApi.MatmulDescCreate, cublasLtMatmulDescCreate) &&
              same_arguments(kApi.MatmulDescSetAttribute, cublasLtMatmulDescSetAttribute) &&
              same_arguments(kApi.MatmulPreferenceSetAttribute, cublasLtMatmulPreferenceSetAttribute) &&
              same_arguments(kApi.MatmulAlgoGetHeuristic, cublasLtMatmulAlgoGetHeuristic) &&
              same_arguments(kApi.MatmulAlgoConfigGetAttribute, cublasLtMatmulAlgoConfigGetAttribute) &&
              same_arguments(kApi.Matmul, cublasLtMatmul));

}  // namespace quire::backend::cuda::lt
