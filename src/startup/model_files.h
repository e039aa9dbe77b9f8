#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "chat/chat_templates.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "tokenize/gguf_vocabulary.h"
#include "tokenize/tokenizer.h"

// The tokenizer and chat templates of a model, from a directory or a GGUF file.
namespace quire::startup {

/// Returns `path` if it is a model: a GGUF file or a directory with a config.json. Otherwise throws Error
/// that says what a model is, and suggests the path that may be meant.
const std::string& checked_model(const std::string& path);

/// The last part of the path without ".gguf": the default name of a served model.
std::string model_name(const std::filesystem::path& path);

/// `path`: a directory, a tokenizer file, or a GGUF file. Throws Error with file and key.
std::unique_ptr<tokenize::Tokenizer> load_tokenizer(const std::filesystem::path& path);

/// `path`: a directory, a .jinja file, or a GGUF file; none if it has none. `only`: the name of the template
/// to use for all requests, or the file of another template; empty: all templates. Throws Error if that
/// template is unknown or does not parse.
chat::ChatTemplates find_chat_templates(const std::filesystem::path& path, const std::string& only);
/// Like find_chat_templates, but throws Error if there is none.
chat::ChatTemplates load_chat_templates(const std::filesystem::path& path, const std::string& only);

/// Reads the "tokenizer.*" keys of a GGUF file, and builds them for writing. Throws Error with file and key.
tokenize::GgufVocabulary read_gguf_vocabulary(const formats::Gguf& file);
formats::GgufMetadata vocabulary_metadata(const tokenize::GgufVocabulary& vocabulary);

}  // namespace quire::startup
