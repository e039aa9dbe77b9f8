#include "tensor/weight_format.h"

namespace quire {

std::string_view weight_format_name(WeightFormat format) {
  constexpr std::string_view kNames[kNumWeightFormats] = {"f32",  "f16",  "bf16", "int8", "int4",
                                                          "Q8_0", "Q4_0", "Q4_K", "Q6_K"};
  return kNames[static_cast<size_t>(format)];
}

WeightFormat weight_format_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return WeightFormat::kF16;
    case DType::kBF16:
      return WeightFormat::kBF16;
    default:
      return WeightFormat::kF32;
  }
}

}  // namespace quire
