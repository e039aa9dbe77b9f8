#pragma once

#include "tensor/dtype.h"
#include "tensor/weight_format.h"

namespace quire::backend::cpu {

/// How a model's weights are kept.
struct WeightSetting {
  DType compute = DType::kF32;               // of embeddings and routers, and what quantized ones expand to
  WeightFormat format = WeightFormat::kF32;  // of the matrices of the layers and the head
  bool own_blocks = false;                   // but those that a GGUF file has in a format of these stay in it
};

}  // namespace quire::backend::cpu
