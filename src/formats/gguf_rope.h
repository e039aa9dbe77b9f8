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
/// by which Llama 3's RoPE stretches each wave, or longrope's two lists of divisors.
bool is_gguf_rope_tensor(const GgufFamily& family, std::string_view name);

/// Adds what config.json says of RoPE. Throws Error naming file and key or tensor for what quire cannot
/// honour.
void read_gguf_rope(const Gguf& file, const GgufFamily& family, GgufKeys& keys, json::object& config);

/// The reverse: the keys, and the tensors besides the weights. `where` is named in an Error for what GGUF has
/// no form for.
void add_gguf_rope(GgufMetadata& out, const GgufFamily& family, const model::ModelConfig& config,
                   const std::filesystem::path& where);

struct GgufRopeTensor {
  std::string_view name;
  std::vector<float> values;
};
std::vector<GgufRopeTensor> gguf_rope_tensors(const model::ModelConfig& config);

}  // namespace quire::formats
