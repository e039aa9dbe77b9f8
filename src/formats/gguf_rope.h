#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/gguf.h"
#include "formats/gguf_keys.h"
#include "formats/gguf_names.h"
#include "formats/gguf_writer.h"
#include "model/config.h"

namespace quire::formats {

/// Whether a tensor of this family's files belongs to its RoPE, and so to its config: "rope_freqs.weight",
/// the factors of Llama 3's wavelengths, or longrope's two lists of divisors.
bool is_gguf_rope_tensor(const GgufFamily& family, std::string_view name);

/// Adds the RoPE part of config.json. Throws Error naming file and key or tensor for an unsupported value.
void read_gguf_rope(const Gguf& file, const GgufFamily& family, GgufKeys& keys, json::object& config);

/// The reverse: adds the keys, and the tensors besides the weights. Throws Error naming `where` for a setting
/// that GGUF cannot express.
void add_gguf_rope(GgufMetadata& out, const GgufFamily& family, const model::ModelConfig& config,
                   const std::filesystem::path& where);

struct GgufRopeTensor {
  std::string_view name;
  std::vector<float> values;
};
std::vector<GgufRopeTensor> gguf_rope_tensors(const model::ModelConfig& config);

}  // namespace quire::formats
