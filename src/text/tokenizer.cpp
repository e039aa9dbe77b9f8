#include "text/tokenizer.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/log.h"
#include "text/doubled_keys.h"
#include "text/pipeline_tokenizer.h"
#include "text/sentencepiece.h"
#include "text/tiktoken.h"

namespace quire {
namespace {

std::filesystem::path file_of(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (std::filesystem::exists(path / name, ignored)) return path / name;
  }
  throw file_error(path, "neither tokenizer.json nor tokenizer.model is there");
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  const std::filesystem::path file = file_of(path);
  const std::string bytes = read_file(file);
  if (file.extension() != ".json") {
    if (looks_like_tiktoken(bytes)) return load_tiktoken(bytes, file);
    if (looks_like_sentencepiece(bytes)) return load_sentencepiece(bytes, file);
    const size_t first = bytes.find_first_not_of(" \t\r\n");
    if (first == bytes.npos || bytes[first] != '{') {
      throw file_error(file, "neither a SentencePiece model nor ranks of tiktoken nor JSON");
    }
  }
  const json::value value = parse_json(bytes, file);
  if (const DoubledKeys doubled = find_doubled_keys(bytes); doubled.count > 0) {
    log_warning(fmt::format("{}: key '{}': there twice; the last one counts{}", file.string(), doubled.first,
                            doubled.count > 1 ? fmt::format(" ({} such keys)", doubled.count) : ""));
  }
  return std::make_unique<PipelineTokenizer>(parts_from_json(JsonObject(value, file)));
}

}  // namespace quire
