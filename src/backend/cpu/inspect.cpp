#include "backend/cpu/inspect.h"

#include <set>

#include "backend/cpu/weights.h"
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

uint64_t WeightSizes::packed_bytes() const {
  uint64_t sum = 0;
  for (const auto& [format, bytes] : packed) sum += bytes;
  return sum;
}

WeightSizes weight_sizes(const model::ModelConfig& config, WeightFormat format,
                         const formats::Checkpoint* file, bool own_blocks) {
  WeightSizes out;
  const formats::TensorNames names = formats::names_of(config, file);
  const auto blocks_of = [&](const std::string& name) {
    return file != nullptr && own_blocks ? file->at(name).blocks() : std::nullopt;
  };
  std::set<WeightFormat> formats;
  const auto add_matrix = [&](uint64_t outputs, uint64_t inputs, WeightFormat as) {
    const uint64_t bytes = kernels::PackedMatrix::bytes_of(outputs, inputs, as);
    out.packed[std::string(weight_format_name(as))] += bytes;
    return bytes;
  };
  const std::string embedding = names.of(names.tensors.embedding);
  const std::string head = names.head(config.tie_embeddings);
  for (const formats::ExpectedTensor& tensor :
       file == nullptr ? formats::expected_tensors(config) : formats::expected_tensors(config, *file)) {
    if (tensor.name == embedding || tensor.name == head) continue;
    uint64_t outputs = 1;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) outputs *= static_cast<uint64_t>(tensor.shape[i]);
    const auto inputs = static_cast<uint64_t>(tensor.shape.back());
    if (tensor.shape.size() < 2) {
      out.packed["f32"] += inputs * sizeof(float);
      continue;
    }
    // A router is small, and so exact.
    const bool is_router = config.moe.num_experts > 0 && outputs == config.moe.num_experts;
    const bool is_expert = tensor.name.find(".experts.") != std::string::npos;
    const WeightFormat as =
        is_router ? weight_format_of(config.dtype) : blocks_of(tensor.name).value_or(format);
    if (!is_router) formats.insert(as);
    const uint64_t bytes = add_matrix(outputs, inputs, as);
    if (is_expert) out.expert_bytes += bytes;
    (is_expert ? out.expert_parameters : out.layer_parameters) += outputs * inputs;
  }
  const WeightFormat of_head = blocks_of(head).value_or(format);
  add_matrix(config.vocab_size, config.hidden_size, of_head);
  formats.insert(of_head);
  out.matrix_formats = names_of(formats);
  out.head_parameters = uint64_t{config.vocab_size} * config.hidden_size;
  out.embedding_bytes = out.head_parameters * dtype_bytes(config.dtype);
  // A quantized table is expanded when it is loaded.
  out.embedding_in_file = file == nullptr || file->at(embedding).dtype.has_value();
  return out;
}

ModelShape inspect_model(const std::filesystem::path& model) {
  model::ModelConfig config = formats::load_model_config(model);
  return inspect_model(*formats::Checkpoint::open(model), config);
}

ModelShape inspect_model(const formats::Checkpoint& file, model::ModelConfig& config) {
  formats::settle_head(config, file);
  formats::check_tensors(config, file);
  ModelShape shape = model_shape(config, config.dtype);
  shape.weight_bytes = 0;
  for (const formats::ExpectedTensor& expected : formats::expected_tensors(config, file)) {
    shape.weight_bytes += file.at(expected.name).bytes;
  }
  return shape;
}

void set_kv_dtype(ModelShape& shape, DType dtype) {
  const kernels::KvLayout layout{.dtype = dtype};
  shape.kv_element_bytes = static_cast<uint32_t>(dtype_bytes(dtype));
  shape.kv_scale_bytes = static_cast<uint32_t>(layout.scale_bytes());
}

}  // namespace quire::backend::cpu
