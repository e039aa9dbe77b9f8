#include "kernels/cpu/table.h"

#include <algorithm>

namespace quire::kernels::cpu {
namespace {

constexpr size_t kPiecesPerThread = 8;
// Elements below which waking a second thread costs more than it brings.
constexpr size_t kMinElements = 16384;

}  // namespace

size_t float_index(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 2;
    default:
      return 0;
  }
}

size_t kv_index(DType dtype) { return dtype == DType::kI8 ? 3 : float_index(dtype); }

const KernelTable& table(IsaLevel level) {
  const KernelTable* native = native_table(level);
  return native != nullptr ? *native : reference_table();
}

const PackTable& pack_table(IsaLevel level) {
  const PackTable* native = native_pack_table(level);
  return native != nullptr ? *native : reference_pack_table();
}

size_t balanced_grain(const ThreadPool& pool, size_t count, size_t min_grain) {
  const size_t pieces = size_t{pool.num_threads()} * kPiecesPerThread;
  return std::max({min_grain, (count + pieces - 1) / pieces, size_t{1}});
}

size_t row_grain(const ThreadPool& pool, size_t rows, size_t elements_per_row) {
  return balanced_grain(pool, rows, kMinElements / (elements_per_row + 1) + 1);
}

}  // namespace quire::kernels::cpu
