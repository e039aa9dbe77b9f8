#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/stream.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

/// A product of matrices as gemm.h has it, but for the rows and for where they lie.
struct GemmShape {
  DType dtype;      // of x, weights and bias: f32, f16 or bf16
  DType out_dtype;  // of y: the same, or f32
  uint32_t n;
  uint32_t k;
  bool bias;
  auto operator<=>(const GemmShape&) const = default;
};

/// How far apart the rows of n results are: so many elements, or more up to a multiple of 16 bytes.
inline uint32_t result_stride(uint32_t n, DType dtype) {
  const auto piece = static_cast<uint32_t>(16 / dtype_bytes(dtype));
  return (n + piece - 1) / piece * piece;
}

/// cuBLASLt's handle, and the memory that its algorithms work in.
class LtHandle {
 public:
  /// Throws Error if the device has no memory for the workspace.
  LtHandle(const lt::Api& api, Stream stream, size_t workspace_bytes);
  ~LtHandle();
  LtHandle(const LtHandle&) = delete;
  LtHandle& operator=(const LtHandle&) = delete;

  const lt::Api& api() const { return api_; }
  lt::Handle* get() const { return handle_; }
  Stream stream() const { return stream_; }
  const DeviceBuffer& workspace() const { return workspace_; }

 private:
  const lt::Api& api_;
  Stream stream_;
  lt::Handle* handle_ = nullptr;
  DeviceBuffer workspace_;
};

/// The products of one shape in cuBLASLt. All calls throw Error if it refuses, and name the shape.
class LtProduct {
 public:
  struct Operands {
    const void* x;
    const void* weights;
    const void* bias;
    void* y;
    uint32_t rows;
  };

  /// `lt` must outlive it. `bias`: one of those to come, for its alignment; null if the shape has none.
  LtProduct(LtHandle& lt, const GemmShape& shape, const void* bias);

  const GemmShape& shape() const { return shape_; }
  /// What cuBLASLt offers for so many rows, what it takes for the best first; without `may_split` none that
  /// says that it splits K. Perhaps nothing.
  std::vector<lt::Algorithm> offered(uint32_t rows, bool may_split) const;
  /// Adds the product to the stream. `algorithm`: one that was offered, for whichever number of rows. False
  /// if it does not do for this one: why_not() says why.
  bool add(const lt::Algorithm& algorithm, const Operands& operands);
  std::string why_not() const;

 private:
  using Layout = std::unique_ptr<lt::Layout, lt::Status (*)(lt::Layout*)>;
  struct Rows {
    Layout x;
    Layout y;
  };
  Layout layout(DType dtype, uint32_t rows, uint32_t columns, uint32_t stride) const;
  Rows rows_layouts(uint32_t rows) const;
  void check(lt::Status status, const char* call) const;

  LtHandle& lt_;
  GemmShape shape_;
  std::unique_ptr<lt::Operation, lt::Status (*)(lt::Operation*)> operation_;
  Layout weights_;
  std::map<uint32_t, Rows> layouts_;  // by the number of rows
  lt::Status status_ = lt::kSuccess;  // of the last add()
};

}  // namespace quire::backend::cuda
