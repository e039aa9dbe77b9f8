#pragma once

#include <cstdint>
#include <filesystem>

#include "base/json.h"
#include "formats/gguf.h"
#include "formats/gguf_names.h"
#include "formats/gguf_writer.h"
#include "model/config.h"

namespace quire::formats {

/// The description of the model in a GGUF file, as the equivalent Hugging Face config.json, so that both
/// forms are read, refused and converted in the same way. Throws Error naming file and key or tensor for an
/// unsupported value; warns of unknown keys.
json::object gguf_config_json(const Gguf& file);
/// The same for generation_config.json: "general.sampling.*", with the "do_sample" that follows from them.
/// Empty if there is none.
json::object gguf_generation_json(const Gguf& file);

/// The model config of such a config.json, which was read from `file` and names its dtype.
model::ModelConfig gguf_model_config(const std::filesystem::path& file, const json::value& config);

struct GgufHeads {
  uint32_t query = 0;
  uint32_t kv = 0;
};
GgufHeads gguf_heads(const Gguf& file, const GgufFamily& family);

/// Adds the keys of the model of `config`, as llama.cpp's converter writes them. Throws Error naming `where`
/// and the setting for which GGUF has no key: llama.cpp assumes a fixed value and would compute other
/// numbers.
void add_gguf_config(GgufMetadata& out, const GgufFamily& family, const model::ModelConfig& config,
                     const std::filesystem::path& where);

}  // namespace quire::formats
