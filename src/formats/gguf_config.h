#pragma once

#include <cstdint>
#include <filesystem>

#include "base/json.h"
#include "formats/gguf.h"
#include "formats/gguf_names.h"
#include "formats/gguf_writer.h"
#include "model/config.h"

namespace quire::formats {

/// What a GGUF file says of its model, as the config.json that Hugging Face would have: what quire reads,
/// what it refuses and what a conversion writes are then the same for both. Throws Error naming file and key
/// or tensor for what it cannot honour; warns of keys that it does not know.
json::object gguf_config_json(const Gguf& file);
/// The same of generation_config.json: "general.sampling.*", with the "do_sample" that follows. Empty if
/// there is none.
json::object gguf_generation_json(const Gguf& file);

/// The model of such a config, which was read from `file` and names its dtype.
model::ModelConfig gguf_model_config(const std::filesystem::path& file, const json::value& config);

struct GgufHeads {
  uint32_t query = 0;
  uint32_t kv = 0;
};
GgufHeads gguf_heads(const Gguf& file, const GgufFamily& family);

/// The keys of `config`'s model, as llama.cpp's converter writes them. Throws Error naming `where` and what
/// GGUF has no key for: llama.cpp takes it for granted, and would compute other numbers.
void add_gguf_config(GgufMetadata& out, const GgufFamily& family, const model::ModelConfig& config,
                     const std::filesystem::path& where);

}  // namespace quire::formats
