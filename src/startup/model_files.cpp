#include "startup/model_files.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/file_error.h"
#include "base/log.h"

namespace quire::startup {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr std::string_view kIdSuffix = "_token_id";
constexpr std::string_view kJson = "tokenizer.huggingface.json";
constexpr std::string_view kTemplate = "tokenizer.chat_template";

std::string full(std::string_view key) { return fmt::format("{}{}", kPrefix, key); }

std::optional<bool> optional_boolean(const formats::Gguf& file, std::string_view key) {
  return file.has(full(key)) ? std::optional(file.boolean(full(key))) : std::nullopt;
}

}  // namespace

tokenize::GgufVocabulary read_gguf_vocabulary(const formats::Gguf& file) {
  tokenize::GgufVocabulary out;
  out.model = file.string_or(full("model"), tokenize::kGgufNoVocabulary);
  if (out.model == "none") out.model = tokenize::kGgufNoVocabulary;
  out.pre = file.string_or(full("pre"), "");
  if (out.model == tokenize::kGgufNoVocabulary) return out;
  for (const std::string_view token : file.strings(full("tokens"))) out.tokens.emplace_back(token);
  if (file.has(full("scores"))) out.scores = file.floats(full("scores"));
  if (file.has(full("token_type"))) {
    for (const int64_t type : file.integers(full("token_type"))) {
      out.types.push_back(static_cast<int32_t>(std::clamp<int64_t>(type, INT32_MIN, INT32_MAX)));
    }
  }
  const bool needs_merges = out.model == "gpt2" && !file.has(kJson);
  if (needs_merges && !file.has(full("merges"))) {
    throw file.error(full("merges"), "missing; a vocabulary of the model 'gpt2' needs it");
  }
  if (file.has(full("merges"))) {
    for (const std::string_view merge : file.strings(full("merges"))) out.merges.emplace_back(merge);
  }
  for (const std::string_view key : file.keys()) {
    if (key.starts_with(kPrefix) && key.ends_with(kIdSuffix)) {
      const std::string name(key.substr(kPrefix.size(), key.size() - kPrefix.size() - kIdSuffix.size()));
      const int64_t id = file.integer(key, INT32_MIN, UINT32_MAX);
      if (id >= 0 && static_cast<size_t>(id) < out.tokens.size()) {
        out.ids[name] = static_cast<TokenId>(id);
      } else {
        log_warning(fmt::format("{}: key '{}': {} is not one of the {} tokens, and is ignored",
                                file.path().string(), key, id, out.tokens.size()));
      }
    } else if (key.starts_with(kTemplate) && key.size() > kTemplate.size() + 1 &&
               key[kTemplate.size()] == '.') {
      out.named_templates[std::string(key.substr(kTemplate.size() + 1))] = file.string(key);
    }
  }
  out.add_bos = optional_boolean(file, "add_bos_token");
  out.add_eos = optional_boolean(file, "add_eos_token");
  out.add_space_prefix = optional_boolean(file, "add_space_prefix");
  if (file.has(kTemplate)) out.chat_template = std::string(file.string(kTemplate));
  if (file.has(kJson)) out.huggingface_json = std::string(file.string(kJson));
  return out;
}

formats::GgufMetadata vocabulary_metadata(const tokenize::GgufVocabulary& vocabulary) {
  formats::GgufMetadata out;
  out.add(full("model"), vocabulary.model);
  if (!vocabulary.pre.empty()) out.add(full("pre"), vocabulary.pre);
  if (!vocabulary.tokens.empty()) out.add(full("tokens"), vocabulary.tokens);
  if (!vocabulary.scores.empty()) out.add(full("scores"), vocabulary.scores);
  if (!vocabulary.types.empty()) out.add(full("token_type"), vocabulary.types);
  if (!vocabulary.merges.empty() || vocabulary.model == "gpt2") out.add(full("merges"), vocabulary.merges);
  for (const auto& [name, id] : vocabulary.ids) {
    out.add(fmt::format("{}{}{}", kPrefix, name, kIdSuffix), static_cast<uint32_t>(id));
  }
  for (const auto& [key, value] :
       {std::pair("add_bos_token", vocabulary.add_bos), std::pair("add_eos_token", vocabulary.add_eos),
        std::pair("add_space_prefix", vocabulary.add_space_prefix)}) {
    if (value) out.add(full(key), *value);
  }
  if (vocabulary.chat_template) out.add(kTemplate, *vocabulary.chat_template);
  std::vector<std::string> names;
  for (const auto& [name, text] : vocabulary.named_templates) {
    out.add(fmt::format("{}.{}", kTemplate, name), text);
    names.push_back(name);
  }
  if (!names.empty()) out.add("tokenizer.chat_templates", names);
  if (vocabulary.huggingface_json) out.add("tokenizer.huggingface.json", *vocabulary.huggingface_json);
  return out;
}

const std::string& checked_model(const std::string& path) {
  constexpr std::string_view kModel = "a model is a directory with a config.json, or a .gguf file";
  constexpr std::string_view kConfig = "config.json";
  const std::filesystem::path file = path;
  std::error_code ignored;
  if (formats::is_gguf_file(file)) return path;
  if (!std::filesystem::exists(file, ignored)) {
    throw file_error(file, fmt::format("no such file or directory ({}; none is downloaded)", kModel));
  }
  if (std::filesystem::is_directory(file, ignored)) {
    if (std::filesystem::exists(file / kConfig, ignored)) return path;
    throw file_error(file, fmt::format("is not a model: there is no {} in it ({})", kConfig, kModel));
  }
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (std::filesystem::exists(folder / kConfig, ignored)) {
    throw file_error(file, fmt::format("is a part of a model: give its directory, {}", folder.string()));
  }
  throw file_error(file, fmt::format("is not a model ({})", kModel));
}

std::string model_name(const std::filesystem::path& path) {
  const auto clean = std::filesystem::weakly_canonical(path);
  return (clean.extension() == ".gguf" ? clean.stem() : clean.filename()).string();
}

std::unique_ptr<tokenize::Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  if (!formats::is_gguf_file(path)) return tokenize::Tokenizer::load(path);
  return tokenize::load_gguf_tokenizer(read_gguf_vocabulary(formats::Gguf::open(path)), path);
}

chat::ChatTemplates find_chat_templates(const std::filesystem::path& path, const std::string& only) {
  chat::ChatTemplates found =
      formats::is_gguf_file(path)
          ? tokenize::find_gguf_chat_templates(read_gguf_vocabulary(formats::Gguf::open(path)), path)
          : chat::ChatTemplates::find(path);
  return only.empty() ? found : found.only(only);
}

chat::ChatTemplates load_chat_templates(const std::filesystem::path& path, const std::string& only) {
  chat::ChatTemplates found = find_chat_templates(path, only);
  if (!found.empty()) return found;
  if (!formats::is_gguf_file(path)) return chat::ChatTemplates::load(path);  // says where it looked
  throw file_error(path, fmt::format("no chat template: there is no key '{}'", kTemplate));
}

}  // namespace quire::startup
