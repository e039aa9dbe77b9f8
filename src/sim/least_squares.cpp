#include "sim/least_squares.h"

#include <algorithm>
#include <cmath>

namespace quire::sim {

LeastSquares::LeastSquares(size_t columns)
    : columns_(columns), products_(columns * columns), values_(columns) {}

void LeastSquares::add(std::span<const double> row, double value) {
  for (size_t i = 0; i < columns_; ++i) {
    if (row[i] == 0) continue;
    for (size_t j = 0; j < columns_; ++j) products_[i * columns_ + j] += row[i] * row[j];
    values_[i] += row[i] * value;
  }
}

std::vector<double> LeastSquares::solve() const {
  // Columns in units of their own lengths: their costs differ by many powers of ten.
  std::vector<double> length(columns_);
  for (size_t i = 0; i < columns_; ++i) length[i] = std::sqrt(products_[i * columns_ + i]);
  std::vector<double> x(columns_);
  std::vector<double> gradient(columns_);
  for (size_t i = 0; i < columns_; ++i) gradient[i] = length[i] > 0 ? -values_[i] / length[i] : 0;
  double scale = 0;
  for (const double each : gradient) scale = std::max(scale, std::abs(each));
  // What is nearly a sum of other columns converges slowly, and makes no difference to the sums.
  constexpr int kMostRounds = 10'000;
  for (int round = 0; round < kMostRounds; ++round) {
    double largest = 0;
    for (size_t i = 0; i < columns_; ++i) {
      if (length[i] == 0) continue;
      const double next = std::max(0.0, x[i] - gradient[i]);
      const double change = next - x[i];
      if (change == 0) continue;
      x[i] = next;
      for (size_t j = 0; j < columns_; ++j) {
        if (length[j] > 0) gradient[j] += change * products_[i * columns_ + j] / (length[i] * length[j]);
      }
      largest = std::max(largest, std::abs(change));
    }
    if (largest <= 1e-9 * scale) break;
  }
  for (size_t i = 0; i < columns_; ++i) x[i] = length[i] > 0 ? x[i] / length[i] : 0;
  return x;
}

}  // namespace quire::sim
