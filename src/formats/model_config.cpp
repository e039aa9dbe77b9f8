#include "formats/model_config.h"

#include <fmt/format.h>

#include "base/file_error.h"
#include "base/json.h"
#include "formats/gguf.h"
#include "formats/gguf_config.h"
#include "formats/safetensors.h"

namespace quire::formats {
namespace {

std::filesystem::path generation_config_path(const std::filesystem::path& dir) {
  return dir / "generation_config.json";
}

DType dtype_of_weights(const std::filesystem::path& dir) {
  const Safetensors weights = Safetensors::open(dir);
  for (const auto& [name, tensor] : weights.tensors()) {
    if (is_float(tensor.dtype)) return tensor.dtype;
  }
  return DType::kF32;
}

/// For a directory with only a GGUF file, or a path that is not a directory: the error says what to give
/// instead.
void refuse_without_config(const std::filesystem::path& model, const std::filesystem::path& config) {
  std::error_code failed;
  if (std::filesystem::exists(config, failed)) return;
  if (!std::filesystem::exists(model, failed)) throw file_error(model, "no such directory or file");
  if (!std::filesystem::is_directory(model, failed)) {
    throw file_error(model, "neither a GGUF file nor a directory with a config.json");
  }
  for (const auto& entry : std::filesystem::directory_iterator(model, failed)) {
    if (entry.path().extension() != ".gguf") continue;
    throw file_error(
        config, fmt::format("no such file; for {} give that file itself", entry.path().filename().string()));
  }
}

}  // namespace

model::ModelConfig load_model_config(const std::filesystem::path& model) {
  if (is_gguf_file(model)) return gguf_model_config(model, gguf_config_json(Gguf::open(model)));
  const auto path = model / "config.json";
  refuse_without_config(model, path);
  model::ModelConfig out =
      model::parse_model_config(read_json_file(path), path, [&] { return dtype_of_weights(model); });
  const auto generation_path = generation_config_path(model);
  if (std::filesystem::exists(generation_path)) {
    model::add_generation_config(read_json_file(generation_path), generation_path, out);
  }
  return out;
}

SamplingDefaults load_sampling_defaults(const std::filesystem::path& model) {
  SamplingDefaults out;
  const bool gguf = is_gguf_file(model);
  const auto path = gguf ? model : generation_config_path(model);
  if (!std::filesystem::exists(path)) return out;
  const json::value root = gguf ? json::value(gguf_generation_json(Gguf::open(model))) : read_json_file(path);
  const JsonObject config(root, path);
  const auto real = [&](std::string_view key, double min, double max) -> std::optional<float> {
    if (!config.has(key)) return std::nullopt;
    const double value = config.number(key);
    if (value < min || value > max) {
      throw config.error(key, fmt::format("{} is out of range [{}, {}]", value, min, max));
    }
    return static_cast<float>(value);
  };
  constexpr double kSmallest = 1e-6;
  out.temperature = real("temperature", 0.0, 100.0);
  out.top_p = real("top_p", kSmallest, 1.0);
  out.min_p = real("min_p", 0.0, 1.0);
  out.repetition_penalty = real("repetition_penalty", kSmallest, 100.0);
  if (config.has("top_k")) {
    // Some files say "all" with -1.
    out.top_k = static_cast<int32_t>(std::max<int64_t>(0, config.integer("top_k", -1, INT32_MAX)));
  }
  // A file without sampling requests greedy decoding.
  if (!config.boolean_or("do_sample", true)) out.temperature = 0.0F;
  // A file that requests sampling without a temperature means transformers' default.
  if (config.has("do_sample") && !out.temperature) out.temperature = 1.0F;
  return out;
}

}  // namespace quire::formats
