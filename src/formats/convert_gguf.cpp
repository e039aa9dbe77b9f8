#include "formats/convert_gguf.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "base/file_error.h"
#include "base/machine_limits.h"
#include "formats/checkpoint.h"
#include "formats/gguf.h"
#include "formats/gguf_config.h"
#include "formats/gguf_names.h"
#include "formats/gguf_rope.h"
#include "formats/json_file.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "formats/safetensors_writer.h"

namespace quire::formats {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;  // that are converted at a time

float rounded(float value, DType dtype) {
  if (dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(value));
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(value));
  return value;
}

uint16_t half_bits(float value, DType dtype) {
  return dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
}

/// `count` values from `first` on as `dtype`, appended to `out`.
void append_values(const TensorView& tensor, size_t first, size_t count, DType dtype,
                   std::vector<std::byte>& out) {
  const size_t before = out.size();
  out.resize(before + count * dtype_bytes(dtype));
  std::byte* to = out.data() + before;
  if (tensor.dtype == dtype) {
    std::memcpy(to, tensor.data + first * dtype_bytes(dtype), count * dtype_bytes(dtype));
    return;
  }
  for (size_t i = 0; i < count; ++i, to += dtype_bytes(dtype)) {
    const float value = element_as_f32(tensor, first + i);
    const uint16_t bits = half_bits(value, dtype);
    if (dtype == DType::kF32) {
      std::memcpy(to, &value, sizeof(value));
    } else {
      std::memcpy(to, &bits, sizeof(bits));
    }
  }
}

/// The dtype in which a tensor is written: a vector keeps the width that its values need.
DType safetensors_dtype(const Checkpoint& file, const std::string& name, DType wanted, ThreadPool& pool) {
  const TensorFacts& facts = file.at(name);
  if (facts.shape.size() != 1 || facts.dtype.value_or(wanted) == wanted) return wanted;
  const LoadedTensor tensor = file.load(name, wanted, pool);
  for (size_t i = 0; i < tensor.view().num_elements(); ++i) {
    const float value = element_as_f32(tensor.view(), i);
    if (rounded(value, wanted) != value) return DType::kF32;
  }
  return wanted;
}

void write_safetensors_of(const Checkpoint& file, const model::ModelConfig& config, DType dtype,
                          const std::filesystem::path& path) {
  ThreadPool pool(usable_cpus().threads);
  std::vector<TensorSpec> specs;
  for (ExpectedTensor& tensor : expected_tensors(config)) {
    const DType own = safetensors_dtype(file, tensor.name, dtype, pool);
    specs.push_back({std::move(tensor.name), own, std::move(tensor.shape)});
  }
  SafetensorsWriter writer(path, specs, {{"format", "pt"}});
  std::vector<std::byte> piece;
  for (const TensorSpec& spec : specs) {
    const LoadedTensor tensor = file.load(spec.name, spec.dtype, pool);
    const size_t count = tensor.view().num_elements();
    constexpr size_t kPieceValues = kPieceBytes / sizeof(float);
    for (size_t first = 0; first < count; first += kPieceValues) {
      piece.clear();
      append_values(tensor.view(), first, std::min(kPieceValues, count - first), spec.dtype, piece);
      writer.append(piece);
    }
  }
  writer.finish();
}

std::optional<DType> plain_dtype(const GgmlType& type) {
  if (type.id == kGgmlF32) return DType::kF32;
  if (type.id == kGgmlF16) return DType::kF16;
  if (type.id == kGgmlBF16) return DType::kBF16;
  return std::nullopt;
}

std::string_view torch_name(DType dtype) {
  return dtype == DType::kBF16 ? "bfloat16" : dtype == DType::kF16 ? "float16" : "float32";
}

/// A tensor of the model as it is written to a GGUF file.
struct GgufOutput {
  std::vector<std::string> hf_names;  // one after the other: those of all experts
  GgufTensorSpec spec;
  uint32_t heads = 0;  // whose rows are put in llama.cpp's order; 0: none
  float plus = 0.0F;   // added to each value
};

/// As in llama.cpp's converter: vectors and routers in F32.
const GgmlType* written_type(const std::string& name, const std::vector<int64_t>& shape,
                             const GgmlType& type) {
  if (shape.size() == 1 || name.ends_with("ffn_gate_inp.weight")) return find_ggml_type(kGgmlF32);
  return find_ggml_type(shape.back() % type.block_values == 0 ? type.id : kGgmlF16);
}

std::vector<GgufOutput> gguf_outputs(const GgufFamily& family, const model::ModelConfig& config,
                                     const Checkpoint& file, const GgmlType& type) {
  const GgufTensorNames names(family);
  std::vector<GgufOutput> out;
  std::map<std::string, size_t> of_experts;  // where in `out`
  for (const ExpectedTensor& tensor : expected_tensors(config, file)) {
    const auto name = names.gguf(tensor.name);
    if (!name) {
      throw file_error(file.path(), fmt::format("GGUF has no name for tensor '{}' of {}", tensor.name,
                                                family.architecture));
    }
    GgufOutput output{{tensor.name},
                      {name->text, written_type(name->text, tensor.shape, type), tensor.shape}};
    if (name->role == GgufRole::kExperts) {
      const auto [place, is_first] = of_experts.emplace(name->text, out.size());
      if (!is_first) {
        out[place->second].hf_names.push_back(tensor.name);
        continue;
      }
      output.spec.shape.insert(output.spec.shape.begin(), config.moe.num_experts);
    }
    if (family.neighbour_rope && name->role == GgufRole::kQuery) output.heads = config.num_heads;
    if (family.neighbour_rope && name->role == GgufRole::kKey) output.heads = config.num_kv_heads;
    if (family.family().norm_adds_one && name->role == GgufRole::kNorm) output.plus = 1.0F;
    out.push_back(std::move(output));
  }
  return out;
}

/// Appends row `row` of the model in the file's order.
void append_row(const TensorView& tensor, size_t row, size_t width, const GgufOutput& output,
                std::vector<float>& values, std::vector<std::byte>& out) {
  const GgmlType& type = *output.spec.type;
  const auto dtype = plain_dtype(type);
  if (dtype && output.plus == 0.0F) {
    append_values(tensor, row * width, width, *dtype, out);
    return;
  }
  values.resize(width);
  for (size_t i = 0; i < width; ++i) values[i] = element_as_f32(tensor, row * width + i) + output.plus;
  if (dtype) {  // a norm
    append_values({DType::kF32, {static_cast<int64_t>(width)}, reinterpret_cast<std::byte*>(values.data())},
                  0, width, *dtype, out);
    return;
  }
  const size_t before = out.size();
  out.resize(before + width / type.block_values * type.block_bytes);
  quantize_q8_0(values.data(), width, out.data() + before);
}

void write_tensor(const TensorView& tensor, const GgufOutput& output, GgufWriter& writer) {
  // The elements of a vector that belong to heads are rows of one.
  const size_t width =
      output.heads > 0 && tensor.shape.size() == 1 ? 1 : static_cast<size_t>(tensor.shape.back());
  const size_t rows = tensor.num_elements() / width;
  std::vector<float> values;
  std::vector<std::byte> piece;
  for (size_t row = 0; row < rows; ++row) {
    const size_t from = output.heads == 0 ? row : half_split_row(row, rows / output.heads);
    append_row(tensor, from, width, output, values, piece);
    if (piece.size() < kPieceBytes && row + 1 < rows) continue;
    writer.append(piece);
    piece.clear();
  }
}

void add_general(GgufMetadata& out, const GgufFamily& family, const std::filesystem::path& dir,
                 const GgmlType& type) {
  constexpr uint32_t kAllF32 = 0;
  constexpr uint32_t kMostlyF16 = 1;
  constexpr uint32_t kMostlyQ80 = 7;
  constexpr uint32_t kMostlyBF16 = 32;
  constexpr uint32_t kQuantizationVersion = 2;
  const auto path = std::filesystem::weakly_canonical(dir);
  out.add("general.architecture", family.arch);
  out.add("general.type", "model");
  out.add("general.name", (path.has_filename() ? path : path.parent_path()).filename().string());
  out.add("general.file_type", type.id == kGgmlF32    ? kAllF32
                               : type.id == kGgmlF16  ? kMostlyF16
                               : type.id == kGgmlBF16 ? kMostlyBF16
                                                      : kMostlyQ80);
  out.add("general.quantization_version", kQuantizationVersion);
}

void add_sampling(GgufMetadata& out, const std::filesystem::path& dir) {
  const SamplingDefaults defaults = load_sampling_defaults(dir);
  for (const auto& [key, value] :
       {std::pair("general.sampling.temp", defaults.temperature),
        std::pair("general.sampling.top_p", defaults.top_p),
        std::pair("general.sampling.min_p", defaults.min_p),
        std::pair("general.sampling.penalty_repeat", defaults.repetition_penalty)}) {
    if (value) out.add(key, *value);
  }
  if (defaults.top_k) out.add("general.sampling.top_k", static_cast<uint32_t>(*defaults.top_k));
}

}  // namespace

void gguf_to_directory(const std::filesystem::path& gguf, const std::filesystem::path& out_dir,
                       std::optional<DType> dtype) {
  const Gguf metadata = Gguf::open(gguf);
  json::object config_json = gguf_config_json(metadata);
  const model::ModelConfig config = gguf_model_config(gguf, config_json);
  const auto file = Checkpoint::open(gguf);
  check_tensors(config, *file);
  config_json["torch_dtype"] = torch_name(dtype.value_or(config.dtype));
  json::object generation = gguf_generation_json(metadata);
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    if (const json::value* value = config_json.if_contains(key)) generation[key] = *value;
  }
  make_directory(out_dir);
  write_safetensors_of(*file, config, dtype.value_or(config.dtype), out_dir / "model.safetensors");
  write_json_file(out_dir / "generation_config.json", generation);
  write_json_file(out_dir / "config.json", config_json);
}

void directory_to_gguf(const std::filesystem::path& dir, model::ModelConfig config,
                       const std::filesystem::path& out, const GgmlType& type,
                       const GgufMetadata& tokenizer) {
  const GgufFamily* family = find_gguf_family(config.architecture);
  if (family == nullptr) {
    throw file_error(dir, fmt::format("{} cannot be written as GGUF", config.architecture));
  }
  const auto file = Checkpoint::open(dir);
  settle_head(config, *file);
  check_tensors(config, *file);

  GgufMetadata metadata;
  add_general(metadata, *family, dir, type);
  add_sampling(metadata, dir);
  add_gguf_config(metadata, *family, config, dir / "config.json");
  metadata.append(tokenizer);

  const std::vector<GgufOutput> outputs = gguf_outputs(*family, config, *file, type);
  const std::vector<GgufRopeTensor> rope = gguf_rope_tensors(config);
  std::vector<GgufTensorSpec> specs;
  for (const GgufRopeTensor& tensor : rope) {
    specs.push_back(
        {std::string(tensor.name), find_ggml_type(kGgmlF32), {static_cast<int64_t>(tensor.values.size())}});
  }
  for (const GgufOutput& output : outputs) specs.push_back(output.spec);
  GgufWriter writer(out, metadata, specs);
  for (const GgufRopeTensor& tensor : rope) writer.append(std::as_bytes(std::span(tensor.values)));
  ThreadPool pool(1);
  for (const GgufOutput& output : outputs) {
    for (const std::string& name : output.hf_names) {
      write_tensor(file->load(name, DType::kF32, pool).view(), output, writer);
    }
  }
  writer.finish();
}

}  // namespace quire::formats
