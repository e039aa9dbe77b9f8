#include "chat/chat_templates.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file_error.h"

namespace quire::chat {
namespace {

/// tokenizer_config.json's chat_template.
std::map<std::string, TemplateSource> sources_in_config(const json::object& config,
                                                        const std::filesystem::path& where) {
  std::map<std::string, TemplateSource> out;
  const json::value* found = config.if_contains("chat_template");
  if (found == nullptr || found->is_null()) return out;
  const auto add = [&](std::string_view name, const json::value& text, std::string key) {
    out[std::string(name)] = {.text = std::string(text.get_string()), .file = where, .key = std::move(key)};
  };
  if (found->is_string()) {
    add(kDefaultTemplate, *found, "chat_template");
    return out;
  }
  const json::array* several = found->if_array();
  if (several == nullptr) throw file_error(where, "key 'chat_template': a string or a list was expected");
  for (size_t i = 0; i < several->size(); ++i) {
    const json::object* entry = (*several)[i].if_object();
    const json::value* name = entry == nullptr ? nullptr : entry->if_contains("name");
    const json::value* text = entry == nullptr ? nullptr : entry->if_contains("template");
    if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string()) {
      throw file_error(where, "key 'chat_template': every entry needs a name and a template");
    }
    add(name->get_string(), *text, fmt::format("chat_template[{}].template", i));
  }
  return out;
}

json::object read_config(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) return {};
  json::value config = read_json_file(path);
  if (!config.is_object()) throw file_error(path, "a JSON object was expected");
  return std::move(config.get_object());
}

/// Older models have some of their tokens in special_tokens_map.json alone.
json::object tokens_of_directory(const std::filesystem::path& dir, const json::object& config) {
  json::object out = special_tokens(config);
  if (config.contains("added_tokens_decoder")) return out;
  for (const auto& [key, token] : special_tokens(read_config(dir / "special_tokens_map.json"))) {
    if (!config.contains(key)) out[key] = token;
  }
  return out;
}

TemplateSource source_in_file(const std::filesystem::path& file) {
  return {.text = read_file(file, kMaxTemplateBytes), .file = file};
}

bool is_given(const json::object& context, std::string_view key) {
  const json::value* value = context.if_contains(key);
  return value != nullptr && !value->is_null();
}

/// As in transformers: the model's reasoning is `reasoning_content` (and, for gpt-oss, `thinking`), whatever
/// name the client uses.
void name_reasoning(json::object& message) {
  const json::value* reasoning = nullptr;
  for (const std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
    if (reasoning == nullptr && is_given(message, name)) reasoning = &message.at(name);
  }
  if (reasoning == nullptr) return;
  json::object named = {{"thinking", *reasoning}};
  for (const auto& [key, value] : message) named[key] = value;
  named["reasoning_content"] = *reasoning;
  message = std::move(named);
}

void fill(json::object& context) {
  json::value* given = context.if_contains("messages");
  if (json::array* messages = given == nullptr ? nullptr : given->if_array()) {
    for (json::value& message : *messages) {
      if (json::object* object = message.if_object()) name_reasoning(*object);
    }
  }
  for (const std::string_view key : {"messages", "tools", "documents"}) context.emplace(key, nullptr);
  context.emplace("add_generation_prompt", false);
}

}  // namespace

std::map<std::string, TemplateSource> template_sources(const std::filesystem::path& dir,
                                                       const json::object& config) {
  std::map<std::string, TemplateSource> out;
  std::error_code failed;
  const auto own_file = dir / "chat_template.jinja";
  if (std::filesystem::exists(own_file, failed)) {
    out[std::string(kDefaultTemplate)] = source_in_file(own_file);
  }
  const std::filesystem::directory_iterator more(dir / "additional_chat_templates", failed);
  if (!failed) {
    for (const auto& entry : more) {
      const std::filesystem::path& file = entry.path();
      if (file.extension() == ".jinja" && entry.is_regular_file(failed)) {
        out[file.stem().string()] = source_in_file(file);
      }
    }
  }
  if (out.empty()) out = sources_in_config(config, dir / "tokenizer_config.json");
  // The file in which models for text and images have theirs.
  const auto processor_file = dir / "chat_template.json";
  if (out.empty() && std::filesystem::exists(processor_file, failed)) {
    out = sources_in_config(read_config(processor_file), processor_file);
  }
  return out;
}

json::object special_tokens(const json::object& config) {
  constexpr std::string_view kSuffix = "_token";
  json::object out;
  for (const auto& [key, value] : config) {
    if (!std::string_view(key.data(), key.size()).ends_with(kSuffix)) continue;
    if (value.is_string()) {
      out[key] = value;
    } else if (const json::object* token = value.if_object()) {
      const json::value* content = token->if_contains("content");
      if (content != nullptr && content->is_string()) out[key] = *content;
    }
  }
  return out;
}

ChatTemplates::ChatTemplates(ChatTemplate only) {
  templates_[std::string(kDefaultTemplate)].parsed = std::make_shared<const ChatTemplate>(std::move(only));
}

ChatTemplates::ChatTemplates(const std::map<std::string, TemplateSource>& sources, json::object tokens)
    : tokens_(std::move(tokens)) {
  for (const auto& [name, source] : sources) {
    Entry& entry = templates_[name];
    entry.folder = source.file.parent_path();
    std::string where = source.file.filename().string();
    if (!source.key.empty()) where += fmt::format(": key '{}'", source.key);
    try {
      std::string title =
          name == kDefaultTemplate ? "chat template" : fmt::format("chat template '{}'", name);
      entry.parsed = std::make_shared<const ChatTemplate>(
          ChatTemplate::parse(source.text, where, tokens_, std::move(title)));
    } catch (const Error& error) {
      entry.fault = error.what();
    }
  }
}

ChatTemplates ChatTemplates::find(const std::filesystem::path& path) {
  std::error_code failed;
  const bool is_directory = std::filesystem::is_directory(path, failed);
  const std::filesystem::path dir = is_directory ? path : path.parent_path();
  const json::object config = read_config(dir / "tokenizer_config.json");
  json::object tokens = tokens_of_directory(dir, config);
  if (is_directory) return {template_sources(dir, config), std::move(tokens)};
  return {{{std::string(kDefaultTemplate), source_in_file(path)}}, std::move(tokens)};
}

ChatTemplates ChatTemplates::load(const std::filesystem::path& path) {
  ChatTemplates found = find(path);
  if (!found.empty()) return found;
  throw file_error(path,
                   "no chat template: neither chat_template.jinja nor additional_chat_templates nor a "
                   "chat_template in tokenizer_config.json");
}

std::vector<std::string> ChatTemplates::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : templates_) out.push_back(name);
  return out;
}

std::vector<std::string> ChatTemplates::faults() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : templates_) {
    if (!entry.parsed) out.push_back((entry.folder / entry.fault).string());
  }
  return out;
}

ChatTemplates ChatTemplates::only(const std::string& name_or_file) const {
  ChatTemplates out;
  std::error_code failed;
  if (const auto found = templates_.find(name_or_file); found != templates_.end()) {
    out.templates_.insert(*found);
    out.tokens_ = tokens_;
  } else if (std::filesystem::is_regular_file(name_or_file, failed)) {
    out = {{{std::string(kDefaultTemplate), source_in_file(name_or_file)}}, tokens_};
  } else {
    throw Error(
        fmt::format("'{}' is neither a chat template of this model ({}) nor a file", name_or_file,
                    templates_.empty() ? "it has none" : fmt::format("{}", fmt::join(names(), ", "))));
  }
  if (const auto faults = out.faults(); !faults.empty()) throw Error(faults.front());
  return out;
}

Expected<const ChatTemplate*> ChatTemplates::choose(const json::object& context) const {
  if (templates_.empty()) {
    return refuse(RequestErrorCode::kInvalid,
                  "This model has no chat template; /v1/completions takes a plain prompt.");
  }
  auto chosen = templates_.end();
  if (is_given(context, "tools")) chosen = templates_.find("tool_use");
  if (chosen == templates_.end()) chosen = templates_.find(std::string(kDefaultTemplate));
  if (chosen == templates_.end() && templates_.size() == 1) chosen = templates_.begin();
  if (chosen == templates_.end()) {
    return refuse(RequestErrorCode::kInvalid,
                  fmt::format("This model has several chat templates and none is called 'default': {}.",
                              fmt::join(names(), ", ")));
  }
  if (chosen->second.parsed) return chosen->second.parsed.get();
  return refuse(RequestErrorCode::kInvalid, fmt::format("This model's chat template '{}' is broken: {}",
                                                        chosen->first, chosen->second.fault));
}

Expected<std::string> ChatTemplates::render(json::object context, std::time_t now) const {
  const auto chosen = choose(context);
  if (!chosen) return tl::unexpected(chosen.error());
  fill(context);
  return (*chosen)->render(context, now);
}

Expected<std::string> ChatTemplates::render_open(json::object context, std::time_t now) const {
  const auto chosen = choose(context);
  if (!chosen) return tl::unexpected(chosen.error());
  fill(context);
  return (*chosen)->render_open(std::move(context), now);
}

}  // namespace quire::chat
