#include "tokenize/tokenizer_config.h"

#include <charconv>
#include <map>
#include <set>

#include <fmt/format.h>

namespace quire::tokenize {
namespace {

/// "<s>" or {"content": "<s>", ...}
std::string token_text(const JsonObject& object, std::string_view key) {
  const json::value* value = object.find(key);
  if (value == nullptr) return {};
  return value->is_object() ? object.object(key).string("content") : object.string(key);
}

using TokensById = std::map<int32_t, json::value>;

json::array in_order(TokensById&& tokens) {
  json::array list;
  for (auto& [id, token] : tokens) list.push_back(std::move(token));
  return list;
}

/// {"32000": {"content": "<|im_start|>", ...}}
json::array tokens_by_id(const JsonObject& by_id) {
  TokensById sorted;
  for (const auto& [key, value] : by_id.raw()) {
    int32_t id = -1;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failed != std::errc() || end != key.data() + key.size() || id < 0) {
      throw by_id.error(key, "an id was expected as key");
    }
    json::object token = by_id.object(key).raw();
    token["id"] = id;
    sorted.insert_or_assign(id, std::move(token));
  }
  return in_order(std::move(sorted));
}

void collect_special(const json::value& value, std::set<std::string, std::less<>>& out) {
  if (const json::string* text = value.if_string()) out.emplace(*text);
  if (const json::array* list = value.if_array()) {
    for (const json::value& each : *list) collect_special(each, out);
  }
  if (const json::object* token = value.if_object()) {
    if (const json::value* content = token->if_contains("content")) collect_special(*content, out);
  }
}

/// The texts under the keys "..._token" and "additional_special_tokens".
void collect_special(const json::object& config, std::set<std::string, std::less<>>& out) {
  for (const auto& [key, value] : config) {
    const std::string_view name(key.data(), key.size());
    if (name.ends_with("_token") || name == "additional_special_tokens") collect_special(value, out);
  }
}

/// {"<|im_start|>": 32000}. Those that are named as special elsewhere are.
json::array tokens_by_text(const JsonObject& ids, const std::set<std::string, std::less<>>& special) {
  TokensById sorted;
  for (const auto& [key, value] : ids.raw()) {
    const int64_t* id = value.if_int64();
    if (id == nullptr || *id < 0 || *id > INT32_MAX) throw ids.error(key, "an id was expected");
    const bool is_special = special.contains(std::string_view(key.data(), key.size()));
    sorted.insert_or_assign(
        static_cast<int32_t>(*id),
        json::object{{"id", *id}, {"content", key}, {"special", is_special}, {"normalized", !is_special}});
  }
  return in_order(std::move(sorted));
}

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// What was written before tokenizer_config.json had the added tokens.
void load_older_tokens(const std::filesystem::path& folder, const json::object& config_json,
                       TokenizerConfig& config) {
  const std::filesystem::path path = folder / "added_tokens.json";
  if (!is_there(path)) return;
  std::set<std::string, std::less<>> special;
  collect_special(config_json, special);
  const std::filesystem::path map = folder / "special_tokens_map.json";
  if (is_there(map)) collect_special(JsonObject(read_json_file(map), map).raw(), special);
  const json::value value = read_json_file(path);
  config.added_tokens = tokens_by_text(JsonObject(value, path), special);
  config.added_tokens_file = path;
}

/// tokenizer_config.json; empty where it is absent.
struct ConfigFile {
  explicit ConfigFile(const std::filesystem::path& folder)
      : path(folder / "tokenizer_config.json"),
        value(is_there(path) ? read_json_file(path) : json::object()),
        object(value, path) {}
  std::filesystem::path path;
  json::value value;
  JsonObject object;
};

TokenizerConfig added_tokens_in(const std::filesystem::path& folder, const ConfigFile& file) {
  TokenizerConfig config;
  if (file.object.has("added_tokens_decoder")) {
    config.added_tokens = tokens_by_id(file.object.object("added_tokens_decoder"));
    config.added_tokens_file = file.path;
  } else {
    load_older_tokens(folder, file.object.raw(), config);
  }
  return config;
}

std::optional<bool> optional_boolean(const JsonObject& object, std::string_view key) {
  return object.has(key) ? std::optional(object.boolean(key)) : std::nullopt;
}

}  // namespace

TokenizerConfig TokenizerConfig::load(const std::filesystem::path& folder) {
  const ConfigFile file(folder);
  const JsonObject& object = file.object;
  TokenizerConfig config = added_tokens_in(folder, file);
  config.add_bos = optional_boolean(object, "add_bos_token");
  config.add_eos = optional_boolean(object, "add_eos_token");
  config.bos = token_text(object, "bos_token");
  config.eos = token_text(object, "eos_token");
  config.legacy = object.boolean_or("legacy", true);
  return config;
}

TokenizerConfig TokenizerConfig::load_added_tokens(const std::filesystem::path& folder) {
  return added_tokens_in(folder, ConfigFile(folder));
}

json::array TokenizerConfig::added_to_text() const {
  json::array list = added_tokens;
  for (json::value& token : list) token.as_object()["normalized"] = false;
  return list;
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

}  // namespace quire::tokenize
