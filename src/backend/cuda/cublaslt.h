#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backend/cuda/stream.h"

// The part of cuBLASLt that quire calls, declared anew: the library is loaded when it is asked for, and
// quire is built without its headers. cublaslt_header.cpp, which is compiled where the headers are, holds
// numbers and sizes against them. Facts from the cuBLAS 13 documentation, "Using the cuBLASLt API"; they are
// those of cuBLAS 12 too.
namespace quire::backend::cuda::lt {

using Status = int;
inline constexpr Status kSuccess = 0;
inline constexpr Status kInvalidValue = 7;
inline constexpr Status kNotSupported = 15;

struct Handle;      // cublasLtHandle_t points to it
struct Layout;      // likewise cublasLtMatrixLayout_t
struct Operation;   // cublasLtMatmulDesc_t
struct Preference;  // cublasLtMatmulPreference_t

enum DataType : int { kRealF32 = 0, kRealF16 = 2, kRealBF16 = 14 };
enum ComputeType : int { kComputeF32 = 68 };
enum Transposition : int32_t { kAsItIs = 0, kTransposed = 1 };
enum Epilogue : uint32_t { kPlain = 1, kAddBias = 4 };

// Attributes, with the type of their values.
enum OperationAttribute : int {
  kTransA = 3,         // Transposition
  kTransB = 4,         // Transposition
  kEpilogue = 7,       // Epilogue
  kBiasPointer = 8,    // const void*, of the device
  kBiasDataType = 26,  // DataType
};
enum PreferenceAttribute : int {
  kMaxWorkspace = 1,      // uint64_t, bytes
  kReductionSchemes = 3,  // uint32_t, a mask; 0: only algorithms that do not split K
};
enum AlgorithmAttribute : int {
  kSplitK = 2,     // int32_t
  kReduction = 3,  // uint32_t; 0: none
};

struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  Status status;
  float waves;
  int reserved[4];
};

/// The functions, by the names of cuBLASLt without "cublasLt". Matrices are column-major.
struct Api {
  Status (*Create)(Handle** handle);
  Status (*Destroy)(Handle* handle);
  size_t (*GetVersion)();
  const char* (*GetStatusString)(Status status);
  Status (*MatrixLayoutCreate)(Layout** layout, DataType type, uint64_t rows, uint64_t cols, int64_t ld);
  Status (*MatrixLayoutDestroy)(Layout* layout);
  Status (*MatmulDescCreate)(Operation** operation, ComputeType compute, DataType scale);
  Status (*MatmulDescDestroy)(Operation* operation);
  Status (*MatmulDescSetAttribute)(Operation* operation, OperationAttribute attribute, const void* value,
                                   size_t bytes);
  Status (*MatmulPreferenceCreate)(Preference** preference);
  Status (*MatmulPreferenceDestroy)(Preference* preference);
  Status (*MatmulPreferenceSetAttribute)(Preference* preference, PreferenceAttribute attribute,
                                         const void* value, size_t bytes);
  Status (*MatmulAlgoGetHeuristic)(Handle* handle, Operation* operation, Layout* a, Layout* b, Layout* c,
                                   Layout* d, Preference* preference, int wanted, Heuristic* found,
                                   int* num_found);
  Status (*MatmulAlgoConfigGetAttribute)(const Algorithm* algorithm, AlgorithmAttribute attribute,
                                         void* value, size_t bytes, size_t* written);
  Status (*Matmul)(Handle* handle, Operation* operation, const void* alpha, const void* a, Layout* a_layout,
                   const void* b, Layout* b_layout, const void* beta, const void* c, Layout* c_layout,
                   void* d, Layout* d_layout, const Algorithm* algorithm, void* workspace,
                   size_t workspace_bytes, Stream stream);
};

/// Loads the library once, "libcublasLt.so.13" or ".12", from where the system finds libraries or from
/// `folder` if it is not empty. Throws Error that says what was tried.
const Api& load(const std::string& folder = {});

}  // namespace quire::backend::cuda::lt
