#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "load/gguf.h"
#include "load/gguf_writer.h"
#include "text/chat_template.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer.h"

// A model's tokenizer and chat template, whether it is a directory or a GGUF file.
namespace quire::cli {

/// `path`: a directory, a tokenizer's file, or a GGUF file. Throws Error with file and key.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

/// `path`: a directory, a .jinja file, or a GGUF file; nothing if it has none. Throws Error if it is broken.
std::optional<ChatTemplate> find_chat_template(const std::filesystem::path& path);
/// Throws Error if there is none.
ChatTemplate load_chat_template(const std::filesystem::path& path);

/// The "tokenizer.*" of a GGUF file, and the same to be written. Throws Error with file and key.
GgufVocabulary read_gguf_vocabulary(const Gguf& file);
GgufMetadata vocabulary_metadata(const GgufVocabulary& vocabulary);

}  // namespace quire::cli
