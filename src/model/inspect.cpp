#include "model/inspect.h"

#include "model/checkpoint.h"
#include "model/kv_groups.h"
#include "model/weights.h"

namespace quire {

ModelShape model_shape(const ModelConfig& config, DType kv_dtype) {
  ModelShape shape;
  shape.num_layers = config.num_layers;
  shape.hidden_size = config.hidden_size;
  shape.num_heads = config.num_heads;
  shape.num_kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  shape.ffn_size = config.ffn_size;
  shape.vocab_size = config.vocab_size;
  shape.max_positions = config.max_positions;
  shape.kv_element_bytes = static_cast<uint32_t>(dtype_bytes(kv_dtype));
  const KvGroups groups = group_layers(config);
  shape.kv_windows = groups.windows;
  shape.kv_layers = groups.layers_per_block;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    shape.num_parameters += TensorView{config.dtype, expected.shape, nullptr}.num_elements();
  }
  shape.weight_bytes = shape.num_parameters * dtype_bytes(config.dtype);
  return shape;
}

ModelShape inspect_model(const std::filesystem::path& model) {
  ModelConfig config = load_model_config(model);
  return inspect_model(model, config);
}

ModelShape inspect_model(const std::filesystem::path& model, ModelConfig& config) {
  const auto file = Checkpoint::open(model);
  settle_head(config, *file);
  check_tensors(config, *file);
  ModelShape shape = model_shape(config, config.dtype);
  shape.weight_bytes = 0;
  for (const ExpectedTensor& expected : expected_tensors(config, *file)) {
    shape.weight_bytes += file->at(expected.name).bytes;
  }
  return shape;
}

}  // namespace quire
