#pragma once

#include "tensor/dtype.h"
#include "tensor/weight_format.h"

namespace quire::backend::cpu {

/// The formats of a model's weights in memory.
struct WeightSetting {
  DType compute = DType::kF32;  // for embeddings and routers, and for quantized matrices that are expanded
  WeightFormat format = WeightFormat::kF32;  // for the matrices of the layers and the head
  bool own_blocks =
      false;  // whether matrices that a GGUF file has in a supported quantized format stay in it
};

}  // namespace quire::backend::cpu
