#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/stream.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

inline constexpr size_t kGemmWorkspace = 32 << 20;  // bytes; what NVIDIA recommends for its newer cards

/// Rows are multiplied in groups of as many, so that an algorithm works on whole tiles.
inline constexpr uint32_t kGemmRows = 64;
inline uint32_t padded_rows(uint32_t rows) { return (rows + kGemmRows - 1) / kGemmRows * kGemmRows; }

/// How far apart the rows of n results are: so many elements, or more up to a multiple of 16 bytes.
inline uint32_t result_stride(uint32_t n, DType dtype) {
  const auto piece = static_cast<uint32_t>(16 / dtype_bytes(dtype));
  return (n + piece - 1) / piece * piece;
}

/// y[r, i] = sum over j of x[r, j] * weights[i, j] (+ bias[i]), all on the device and row-major: x [rows, k],
/// weights [n, k], bias [n] or null, y [rows, n] with rows result_stride() apart; otherwise without gaps, and
/// at multiples of 16 bytes. x and y have memory for padded_rows(rows); what comes of the rows behind is of
/// no use.
struct GemmArgs {
  DType dtype;      // of x, weights and bias: f32, f16 or bf16
  DType out_dtype;  // of y: the same, or f32
  const void* x;
  const void* weights;
  const void* bias;
  void* y;
  uint32_t rows;
  uint32_t n;
  uint32_t k;  // a multiple of 16 bytes
};

/// How cuBLASLt's algorithms are chosen, each when a shape is first multiplied.
enum class GemmChoice : uint8_t {
  /// One for each shape of weights, which does not split K: a row of y depends on that row of x alone, not on
  /// how many there are.
  kSameForAllRows,
  /// The first that cuBLASLt offers for this number of rows, which may split K: the bits of a row may depend
  /// on how many there are. Up to kGemmRows rows are not padded.
  kFastest,
};

/// Multiplies matrices on one stream by cuBLASLt, with f32 sums. Not thread-safe.
class Gemm {
 public:
  /// Throws Error if the device has no memory for its workspace.
  Gemm(const lt::Api& api, Stream stream, GemmChoice choice = GemmChoice::kSameForAllRows);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// Throws Error if cuBLASLt refuses; names the shape.
  void multiply(const GemmArgs& args);

 private:
  struct Shape {
    DType dtype;
    DType out_dtype;
    uint32_t n;
    uint32_t k;
    bool bias;
    uint32_t rows;  // for which an algorithm is chosen
    auto operator<=>(const Shape&) const = default;
  };
  using Layout = std::unique_ptr<lt::Layout, lt::Status (*)(lt::Layout*)>;
  struct Plan {
    std::unique_ptr<lt::Operation, lt::Status (*)(lt::Operation*)> operation;
    Layout weights;
    lt::Algorithm algorithm{};
  };
  const Plan& plan_of(const Shape& shape, const void* bias);
  Plan make_plan(const Shape& shape, const void* bias) const;
  Layout layout(DType dtype, uint32_t rows, uint32_t columns, uint32_t stride, const Shape& shape) const;
  lt::Algorithm choose_algorithm(const Shape& shape, const Plan& plan) const;
  void check_lt(lt::Status status, const char* call, const Shape& shape) const;

  const lt::Api& api_;
  Stream stream_;
  GemmChoice choice_;
  lt::Handle* handle_ = nullptr;
  DeviceBuffer workspace_;
  std::map<Shape, Plan> plans_;
};

}  // namespace quire::backend::cuda
