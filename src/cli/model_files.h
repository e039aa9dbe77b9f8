#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "chat/chat_templates.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "tokenize/gguf_vocabulary.h"
#include "tokenize/tokenizer.h"

// A model's tokenizer and chat template, whether it is a directory or a GGUF file.
namespace quire::cli {

/// `path`, if it is a model: a GGUF file or a directory with a config.json. Throws Error that says what a
/// model is, and where the one may be that was meant.
const std::string& checked_model(const std::string& path);

/// `path`: a directory, a tokenizer's file, or a GGUF file. Throws Error with file and key.
std::unique_ptr<tokenize::Tokenizer> load_tokenizer(const std::filesystem::path& path);

/// `path`: a directory, a .jinja file, or a GGUF file; none if it has none. `only`: the name of the one to
/// use whatever is asked, or another template's file; empty: all. Throws Error if that one is unknown or
/// broken.
chat::ChatTemplates find_chat_templates(const std::filesystem::path& path, const std::string& only);
/// Throws Error also if there is none.
chat::ChatTemplates load_chat_templates(const std::filesystem::path& path, const std::string& only);

/// The "tokenizer.*" of a GGUF file, and the same to be written. Throws Error with file and key.
tokenize::GgufVocabulary read_gguf_vocabulary(const formats::Gguf& file);
formats::GgufMetadata vocabulary_metadata(const tokenize::GgufVocabulary& vocabulary);

}  // namespace quire::cli
