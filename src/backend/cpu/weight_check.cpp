#include "backend/cpu/weight_check.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <fmt/format.h>

#include "base/file_error.h"
#include "base/log.h"
#include "formats/safetensors_header.h"

namespace quire::backend::cpu {
namespace {

constexpr size_t kAtOnce = size_t{1} << 16;  // elements

/// A float is no number exactly if all bits of its exponent are set. Without a branch, so that it compiles
/// into vector instructions.
template <class Bits>
bool all_finite(const Bits* values, size_t count, Bits exponent) {
  Bits found = 0;
  for (size_t i = 0; i < count; ++i) {
    found = static_cast<Bits>(found | static_cast<Bits>((values[i] & exponent) == exponent));
  }
  return found == 0;
}

template <class Bits>
void find_first(kernels::KernelContext& context, const TensorView& tensor, Bits exponent,
                std::atomic<size_t>& first) {
  const Bits* values = tensor.as<Bits>();
  const size_t count = tensor.num_elements();
  context.pool.parallel_for((count + kAtOnce - 1) / kAtOnce, 1, [&](size_t begin, size_t end, uint32_t) {
    for (size_t piece = begin; piece < end; ++piece) {
      const size_t from = piece * kAtOnce;
      if (all_finite(values + from, std::min(kAtOnce, count - from), exponent)) continue;
      size_t at = from;
      while ((values[at] & exponent) != exponent) ++at;
      size_t known = first.load();
      while (at < known && !first.compare_exchange_weak(known, at)) {
      }
    }
  });
}

}  // namespace

void warn_if_not_finite(kernels::KernelContext& context, const TensorView& tensor,
                        const formats::TensorPlace& place) {
  std::atomic<size_t> first = tensor.num_elements();
  if (tensor.dtype == DType::kF32) {
    find_first<uint32_t>(context, tensor, 0x7f800000U, first);
  } else {
    find_first<uint16_t>(context, tensor, tensor.dtype == DType::kF16 ? 0x7c00U : 0x7f80U, first);
  }
  if (first == tensor.num_elements()) return;
  const uint64_t inside = place.verbatim ? first.load() * dtype_bytes(tensor.dtype) : 0;
  log_warning(file_error(place.file, place.offset + inside,
                         fmt::format("tensor {}: element {} is NaN or infinite",
                                     formats::quoted_name(place.name), first.load()))
                  .what());
}

}  // namespace quire::backend::cpu
