#pragma once

#include <cstdint>
#include <filesystem>

#include "base/json.h"

namespace quire::formats {

/// A llama2.c tokenizer file as a tokenizer.json: BPE with byte fallback, whose merges, by rank, do what
/// llama2.c does by score. (Where two ways to make one piece compete for the same characters, llama2.c takes
/// the one further left, which no order of ranks can say.) The file does not know how many tokens it has:
/// `vocab_size` says. Throws Error with file and offset.
json::object llama2c_tokenizer_json(const std::filesystem::path& file, uint32_t vocab_size);

}  // namespace quire::formats
