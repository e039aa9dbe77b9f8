#include "startup/model_outline.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"
#include "base/json.h"
#include "formats/model_config.h"
#include "startup/model_files.h"
#include "startup/model_options.h"

namespace quire::startup {
namespace {

namespace fs = std::filesystem;

/// The weight files that a directory should have; nullopt if only opening it can tell.
std::optional<std::vector<std::string>> weight_files(const fs::path& directory) {
  std::vector<std::string> names;
  const fs::path index = directory / "model.safetensors.index.json";
  if (!fs::exists(index)) {
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (entry.path().extension() == ".safetensors") names.push_back(entry.path().filename().string());
    }
    return names;
  }
  const json::value parsed = read_json_file(index);
  const json::value* map = parsed.is_object() ? parsed.get_object().if_contains("weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) return std::nullopt;
  for (const auto& [tensor, file] : map->get_object()) {
    if (file.is_string()) names.emplace_back(file.get_string());
  }
  return names;
}

/// Why the weights of a directory cannot be read, if they are not there at all: what a clone without its
/// large files has, or a copy of the config alone.
std::optional<std::string> absent_weights(const fs::path& model) {
  if (!fs::is_directory(model)) return std::nullopt;
  const auto names = weight_files(model);
  if (!names) return std::nullopt;
  if (names->empty()) return "no .safetensors file is here";
  for (const std::string& name : *names) {
    std::ifstream file(model / name, std::ios::binary);
    if (!file) return fmt::format("{} is not here", name);
    std::string head(200, '\0');
    file.read(head.data(), static_cast<std::streamsize>(head.size()));
    head.resize(static_cast<size_t>(file.gcount()));
    try {
      refuse_lfs_pointer(model / name, head);
    } catch (const Error&) {
      return fmt::format("{} is a Git LFS pointer", name);
    }
  }
  return std::nullopt;
}

}  // namespace

ModelOutline outline_of(const std::string& path) {
  fs::path model = path;
  if (model.filename() == "config.json")
    model = model.has_parent_path() ? model.parent_path() : fs::path(".");
  ModelOutline out;
  out.path = model.string();
  out.config = formats::load_model_config(checked_model(out.path));
  out.absent = absent_weights(model);
  if (out.absent) {
    out.shape = backend::cpu::model_shape(out.config, out.config.dtype);
  } else {
    out.file = formats::Checkpoint::open(model);
    out.shape = backend::cpu::inspect_model(*out.file, out.config);
  }
  return out;
}

void set_compute_type(ModelOutline& model, const std::string& dtype) {
  model.config.dtype = pick_dtype(dtype).value_or(model.config.dtype);
  backend::cpu::set_kv_dtype(model.shape, model.config.dtype);
}

std::string stored_formats(const ModelOutline& model) {
  if (model.file == nullptr) return std::string(dtype_name(model.config.dtype));
  std::map<std::string, uint64_t> bytes;
  for (const auto& [name, facts] : model.file->tensors()) bytes[facts.format] += facts.bytes;
  std::vector<std::pair<uint64_t, std::string>> sorted;
  for (const auto& [format, count] : bytes) sorted.emplace_back(count, format);
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::string out;
  for (const auto& [count, format] : sorted) out += fmt::format("{}{}", out.empty() ? "" : ", ", format);
  return out;
}

backend::cpu::WeightSizes weight_sizes(const ModelOutline& model, const std::string& quantization) {
  const WeightFormat format = pick_quantization(quantization).value_or(weight_format_of(model.config.dtype));
  return backend::cpu::weight_sizes(model.config, format, model.file.get(), quantization == "auto");
}

backend::ModelShape shape_with_kv(const ModelOutline& model, const std::string& kv_cache_dtype) {
  backend::ModelShape shape = model.shape;
  const auto dtype = pick_kv_dtype(kv_cache_dtype, model.config.head_dim);
  if (dtype) backend::cpu::set_kv_dtype(shape, *dtype);
  return shape;
}

}  // namespace quire::startup
