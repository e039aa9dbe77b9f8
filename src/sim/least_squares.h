#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace quire::sim {

/// Non-negative least squares: min |A x - b| with x >= 0, for tall A with few columns. The equations are
/// added one by one, so that A itself is not kept.
class LeastSquares {
 public:
  explicit LeastSquares(size_t columns);

  /// An equation: the sum of row[i] x[i] is `value`. REQUIRES: row.size() is the number of columns.
  void add(std::span<const double> row, double value);
  /// The x. Columns that are 0 in all equations, or a sum of others, get what they get: an x of least error.
  /// Coordinate descent on the normal equations (V. Franc et al.: Sequential coordinate-wise algorithm for
  /// the non-negative least squares problem, CAIP 2005).
  std::vector<double> solve() const;

 private:
  size_t columns_;
  std::vector<double> products_;  // A^T A, by rows
  std::vector<double> values_;    // A^T b
};

}  // namespace quire::sim
