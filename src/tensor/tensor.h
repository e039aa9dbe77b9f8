#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace quire {

/// Contiguous row-major data with another owner (a mapped file, a buffer).
struct TensorView {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;

  size_t num_elements() const {
    size_t n = 1;
    for (const int64_t d : shape) n *= static_cast<size_t>(d);
    return n;
  }
  size_t num_bytes() const { return num_elements() * dtype_bytes(dtype); }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
};

/// The `index`-th element of a floating-point tensor.
float element_as_f32(const TensorView& tensor, size_t index);

}  // namespace quire
