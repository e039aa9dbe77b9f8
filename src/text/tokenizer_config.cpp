#include "text/tokenizer_config.h"

#include <charconv>
#include <map>

#include <fmt/format.h>

namespace quire {
namespace {

/// "<s>" or {"content": "<s>", ...}
std::string token_text(const JsonObject& object, std::string_view key) {
  const json::value* value = object.find(key);
  if (value == nullptr) return {};
  return value->is_object() ? object.object(key).string("content") : object.string(key);
}

json::array sorted_by_id(const JsonObject& by_id) {
  std::map<int32_t, json::value> sorted;
  for (const auto& [key, value] : by_id.raw()) {
    int32_t id = -1;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failed != std::errc() || end != key.data() + key.size() || id < 0) {
      throw by_id.error(key, "an id was expected as key");
    }
    json::object token = by_id.object(key).raw();
    token["id"] = id;
    // Beside a tokenizer.model they are cut out of the text as it is, whatever this says.
    token["normalized"] = false;
    sorted.insert_or_assign(id, std::move(token));
  }
  json::array list;
  for (auto& [id, token] : sorted) list.push_back(std::move(token));
  return list;
}

std::optional<bool> optional_boolean(const JsonObject& object, std::string_view key) {
  return object.has(key) ? std::optional(object.boolean(key)) : std::nullopt;
}

}  // namespace

TokenizerConfig TokenizerConfig::load(const std::filesystem::path& folder) {
  TokenizerConfig config;
  const std::filesystem::path path = folder / "tokenizer_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return config;
  const json::value value = read_json_file(path);
  const JsonObject object(value, path);
  if (object.has("added_tokens_decoder")) {
    config.added_tokens = sorted_by_id(object.object("added_tokens_decoder"));
  }
  config.add_bos = optional_boolean(object, "add_bos_token");
  config.add_eos = optional_boolean(object, "add_eos_token");
  config.bos = token_text(object, "bos_token");
  config.eos = token_text(object, "eos_token");
  config.legacy = object.boolean_or("legacy", true);
  return config;
}

json::value surrounding_tokens(std::optional<std::pair<std::string, TokenId>> before,
                               std::optional<std::pair<std::string, TokenId>> behind) {
  if (!before && !behind) return nullptr;
  json::array single;
  json::object tokens;
  const auto add = [&](const std::optional<std::pair<std::string, TokenId>>& token) {
    if (!token) return;
    single.push_back(json::object{{"SpecialToken", {{"id", token->first}}}});
    tokens[token->first] = json::object{{"ids", json::array{token->second}}};
  };
  add(before);
  single.push_back(json::object{{"Sequence", {{"id", "A"}}}});
  add(behind);
  return json::object{{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", tokens}};
}

}  // namespace quire
