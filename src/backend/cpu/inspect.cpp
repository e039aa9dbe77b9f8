#include "backend/cpu/inspect.h"

#include "formats/checkpoint.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "model/kv_groups.h"

namespace quire::backend::cpu {

ModelShape model_shape(const model::ModelConfig& config, DType kv_dtype) {
  ModelShape shape;
  shape.num_layers = config.num_layers;
  shape.hidden_size = config.hidden_size;
  shape.num_heads = config.num_heads;
  shape.num_kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  shape.ffn_size = config.ffn_size;
  shape.vocab_size = config.vocab_size;
  shape.max_positions = config.max_positions;
  set_kv_dtype(shape, kv_dtype);
  const model::KvGroups groups = model::group_layers(config);
  shape.kv_windows = groups.windows;
  shape.kv_layers = groups.layers_per_block;
  for (const formats::ExpectedTensor& expected : formats::expected_tensors(config)) {
    shape.num_parameters += TensorView{config.dtype, expected.shape, nullptr}.num_elements();
  }
  shape.weight_bytes = shape.num_parameters * dtype_bytes(config.dtype);
  return shape;
}

uint64_t packed_weight_bytes(const model::ModelConfig& config, WeightFormat format) {
  uint64_t bytes = 0;
  for (const formats::ExpectedTensor& tensor : formats::expected_tensors(config)) {
    if (tensor.name.ends_with("embed_tokens.weight")) continue;
    uint64_t outputs = 1;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) outputs *= static_cast<uint64_t>(tensor.shape[i]);
    const auto inputs = static_cast<size_t>(tensor.shape.back());
    // A router is small, and so exact.
    const bool is_router =
        tensor.shape.size() == 2 && config.moe.num_experts > 0 && outputs == config.moe.num_experts;
    if (tensor.shape.size() < 2) {
      bytes += inputs * sizeof(float);
    } else {
      bytes += kernels::PackedMatrix::bytes_of(outputs, inputs,
                                               is_router ? weight_format_of(config.dtype) : format);
    }
  }
  if (config.tie_embeddings)
    bytes += kernels::PackedMatrix::bytes_of(config.vocab_size, config.hidden_size, format);
  return bytes;
}

ModelShape inspect_model(const std::filesystem::path& model) {
  model::ModelConfig config = formats::load_model_config(model);
  return inspect_model(model, config);
}

ModelShape inspect_model(const std::filesystem::path& model, model::ModelConfig& config) {
  const auto file = formats::Checkpoint::open(model);
  formats::settle_head(config, *file);
  formats::check_tensors(config, *file);
  ModelShape shape = model_shape(config, config.dtype);
  shape.weight_bytes = 0;
  for (const formats::ExpectedTensor& expected : formats::expected_tensors(config, *file)) {
    shape.weight_bytes += file->at(expected.name).bytes;
  }
  return shape;
}

void set_kv_dtype(ModelShape& shape, DType dtype) {
  const kernels::KvLayout layout{.dtype = dtype};
  shape.kv_element_bytes = static_cast<uint32_t>(dtype_bytes(dtype));
  shape.kv_scale_bytes = static_cast<uint32_t>(layout.scale_bytes());
}

}  // namespace quire::backend::cpu
