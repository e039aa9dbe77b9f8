#include "tokenize/tokenizer.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file_error.h"
#include "base/json.h"
#include "base/log.h"
#include "tokenize/doubled_keys.h"
#include "tokenize/pipeline_tokenizer.h"
#include "tokenize/sentencepiece.h"
#include "tokenize/tiktoken.h"
#include "tokenize/tokenizer_config.h"

namespace quire::tokenize {
namespace {

std::filesystem::path file_of(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (std::filesystem::exists(path / name, ignored)) return path / name;
  }
  throw file_error(path, "neither tokenizer.json nor tokenizer.model exists");
}

/// As in transformers: tokens that the files beside have and tokenizer.json lacks are appended to its own.
void add_missing_tokens(const std::filesystem::path& folder, json::value& root) {
  if (!root.is_object()) return;
  TokenizerConfig config = TokenizerConfig::load_added_tokens(folder);
  json::value& own = root.as_object()["added_tokens"];
  if (own.is_null()) own = json::array();
  if (!own.is_array()) return;  // refused with its key, later
  std::set<std::string, std::less<>> known;
  const auto content_of = [](const json::value& token) {
    const json::object* object = token.if_object();
    const json::value* content = object == nullptr ? nullptr : object->if_contains("content");
    return content != nullptr && content->is_string() ? std::string(content->as_string()) : std::string();
  };
  for (const json::value& token : own.as_array()) known.insert(content_of(token));
  std::vector<std::string> added;
  for (json::value& token : config.added_tokens) {
    const std::string content = content_of(token);
    if (content.empty() || known.contains(content)) continue;
    added.push_back(content);
    own.as_array().push_back(std::move(token));
  }
  if (added.empty()) return;
  log_info(fmt::format("{}: adds {} tokens that tokenizer.json does not have: {}{}",
                       config.added_tokens_file.string(), added.size(),
                       fmt::join(added.begin(), added.begin() + std::min<size_t>(added.size(), 3), ", "),
                       added.size() > 3 ? ", ..." : ""));
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  const std::filesystem::path file = file_of(path);
  const bool is_of_a_directory = file != path;
  const std::string bytes = read_file(file);
  if (file.extension() != ".json") {
    if (looks_like_tiktoken(bytes)) return load_tiktoken(bytes, file);
    if (looks_like_sentencepiece(bytes)) return load_sentencepiece(bytes, file);
    const size_t first = bytes.find_first_not_of(" \t\r\n");
    if (first == bytes.npos || bytes[first] != '{') {
      throw file_error(file, "neither a SentencePiece model nor tiktoken ranks nor JSON");
    }
  }
  json::value value = parse_json(bytes, file);
  if (const DoubledKeys doubled = find_doubled_keys(bytes); doubled.count > 0) {
    log_warning(fmt::format("{}: key '{}': occurs twice; the last one counts{}", file.string(), doubled.first,
                            doubled.count > 1 ? fmt::format(" ({} such keys)", doubled.count) : ""));
  }
  if (is_of_a_directory) add_missing_tokens(path, value);
  return std::make_unique<PipelineTokenizer>(parts_from_json(JsonObject(value, file)));
}

}  // namespace quire::tokenize
