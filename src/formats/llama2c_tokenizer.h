#pragma once

#include <cstdint>
#include <filesystem>

#include "base/json.h"

namespace quire::formats {

/// A llama2.c tokenizer file as a tokenizer.json: BPE with byte fallback, whose merge ranks reproduce
/// llama2.c's scores. (If two merges that make the same piece compete for the same characters, llama2.c takes
/// the leftmost one, which ranks cannot express.) The file does not state its number of tokens: `vocab_size`
/// gives it. Throws Error with file and offset.
json::object llama2c_tokenizer_json(const std::filesystem::path& file, uint32_t vocab_size);

}  // namespace quire::formats
