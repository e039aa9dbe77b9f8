#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/gemm_choice.h"
#include "backend/cuda/lt_product.h"
#include "backend/cuda/stream.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

inline constexpr size_t kGemmWorkspace = 32 << 20;  // bytes; what NVIDIA recommends for its newer cards

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

/// How algorithms are chosen.
enum class GemmChoice : uint8_t {
  /// So that a row of y depends on that row of x alone, not on how many there are: choose_for_all_rows().
  kSameForAllRows,
  /// For each number of rows the first that cuBLASLt offers, which may split K: the bits of a row may depend
  /// on how many there are. Up to kGemmRows rows are not padded, and most_few_rows() take few_rows().
  kFastest,
};

/// Multiplies matrices on one stream by cuBLASLt, and few rows by few_rows() where that is faster, with f32
/// sums. Not thread-safe.
class Gemm {
 public:
  /// Throws Error if the device has no memory for its workspace.
  Gemm(const lt::Api& api, Stream stream, GemmChoice choice = GemmChoice::kSameForAllRows)
      : lt_(api, stream, kGemmWorkspace), choice_(choice) {}

  /// Chooses what multiplies up to so many rows of a shape, as choose_for_all_rows() does; of kFastest only
  /// how many take few_rows(). False if the device has too little memory to try. What was not prepared takes
  /// first_for_all_rows().
  bool prepare(const GemmShape& shape, std::span<const void* const> weights, const void* bias,
               uint32_t most_rows);

  /// Whether few_rows() multiplies so many rows, of a prepared shape.
  bool takes_few_rows(const GemmShape& shape, uint32_t rows) const;

  /// Throws Error if cuBLASLt refuses; names the shape.
  void multiply(const GemmArgs& args);

 private:
  struct Key {
    GemmShape shape;
    uint32_t rows;  // of kFastest; else 0
    auto operator<=>(const Key&) const = default;
  };
  struct Plan {
    LtProduct product;
    std::vector<RowsChoice> choices;  // never empty
  };
  Plan& plan_of(const Key& key, const void* bias);
  bool prepare_few(const GemmShape& shape, std::span<const void* const> weights, const void* bias);
  /// `rows`: as many as there are, or padded; the ranges of cuBLASLt end with whole groups.
  static const RowsChoice& choice_of(const Plan& plan, uint32_t rows);

  LtHandle lt_;
  GemmChoice choice_;
  std::map<Key, Plan> plans_;
};

}  // namespace quire::backend::cuda
