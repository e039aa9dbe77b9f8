#pragma once

#include <string>
#include <vector>

#include "backend/cuda/runtime.h"
#include "backend/cuda/weights.h"
#include "model/config.h"
#include "tests/device/measure.h"

// What some measurements share.
namespace quire::test::gpu {

inline constexpr uint32_t kBlock = 16;  // tokens of a K/V block

/// In memory of the device.
template <class T>
backend::cuda::DeviceBuffer on_device(const std::vector<T>& values, const std::string& what) {
  backend::cuda::DeviceBuffer out(values.size() * sizeof(T), what);
  backend::cuda::copy_to_device(out.data(), values.data(), out.size(), nullptr);
  backend::cuda::synchronize(nullptr);
  return out;
}

/// Random matrices of bf16, and norms whose factors are all 1.
backend::cuda::ModelWeights random_weights(const model::ModelConfig& config);

/// Of the layers of a step alone.
Needs needs_of_layers(const model::ModelConfig& config, const Step& step);
/// Of the layers, and of the logits of each sequence's last token.
Needs needs_of_step(const model::ModelConfig& config, const Step& step);

}  // namespace quire::test::gpu
