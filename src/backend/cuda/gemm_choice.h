#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/cuda/lt_product.h"

namespace quire::backend::cuda {

/// Rows are multiplied in groups of as many, so that an algorithm works on whole tiles.
inline constexpr uint32_t kGemmRows = 64;
inline uint32_t padded_rows(uint32_t rows) { return (rows + kGemmRows - 1) / kGemmRows * kGemmRows; }

inline constexpr uint32_t kAllGroups = 16;

/// What multiplies up to so many rows: an algorithm of cuBLASLt, for padded rows, or few_rows().
struct RowsChoice {
  uint32_t most_rows;
  std::optional<lt::Algorithm> algorithm;  // none: few_rows()
};

/// The first that cuBLASLt offers for kGemmRows rows and that does not split K. Throws Error if there is
/// none.
lt::Algorithm first_for_all_rows(const LtProduct& product);

/// One algorithm for each range of rows, in rising order, the last up to most_rows (a multiple of kGemmRows):
/// the fastest of those that cuBLASLt offers, for that number or others, that does not split K, and whose
/// rows have the bits of first_for_all_rows(). Which algorithm is the fastest may differ from run to run; no
/// bit depends on it. Before the first range, few_rows() takes as many rows as it multiplies in less time
/// than cuBLASLt takes for the range, if its rows have those bits too.
///
/// cuBLASLt does not say in which order an algorithm sums. So it is tried: of weights and rows whose products
/// cancel out, what is left is the sums' own rounding, of which another order makes other numbers. The rows
/// are the same again in each group of kGemmRows, of which the first and the last are compared: for all
/// numbers of groups in the range up to kAllGroups, beyond for three of them.
///
/// `weights`: the matrices that will be multiplied, so that times are those of weights no cache holds.
/// `bias`: one of theirs, or null. Takes bytes_of_choice() of the device's memory while it runs, and waits
/// for the stream. Throws Error if for some number of rows no algorithm has these bits.
std::vector<RowsChoice> choose_for_all_rows(LtHandle& lt, LtProduct& product,
                                            std::span<const void* const> weights, const void* bias,
                                            uint32_t most_rows);
size_t bytes_of_choice(const GemmShape& shape, uint32_t most_rows);

/// The most rows, 0 to kFewRows, that few_rows() multiplies in less time than what cuBLASLt offers first for
/// one, which may split K. Takes bytes_of_choice() for kGemmRows rows while it runs, and waits for the
/// stream.
uint32_t most_few_rows(LtHandle& lt, LtProduct& product, std::span<const void* const> weights,
                       const void* bias);

}  // namespace quire::backend::cuda
