#include "tensor/tensor.h"

namespace quire {

float element_as_f32(const TensorView& tensor, size_t index) {
  switch (tensor.dtype) {
    case DType::kF16:
      return f16_to_f32(tensor.as<uint16_t>()[index]);
    case DType::kBF16:
      return bf16_to_f32(tensor.as<uint16_t>()[index]);
    default:
      return tensor.as<float>()[index];
  }
}

}  // namespace quire
