#include "text/chat_template.h"

#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "text/jinja_ast.h"
#include "text/jinja_interpreter.h"
#include "text/utf8.h"

namespace quire {
namespace {

constexpr uint64_t kMaxTemplateBytes = uint64_t{4} << 20;

std::string located(const jinja::Fault& fault) {
  return fmt::format("line {}, column {}: {}", fault.line, fault.column, fault.message);
}

std::string checked_source(std::string_view source, const std::filesystem::path& where) {
  if (source.size() > kMaxTemplateBytes) {
    throw file_error(where,
                     fmt::format("a template of {} bytes, more than {}", source.size(), kMaxTemplateBytes));
  }
  if (!is_valid_utf8(source)) throw file_error(where, "the template is not valid UTF-8");
  return std::string(source);
}

/// tokenizer_config.json's chat_template: a string, or several with names of which "default" is meant.
const json::string* template_text(const json::object& config, const std::filesystem::path& where) {
  const json::value* found = config.if_contains("chat_template");
  if (found == nullptr || found->is_null()) return nullptr;
  if (const json::string* text = found->if_string()) return text;
  const json::array* several = found->if_array();
  if (several == nullptr) throw file_error(where, "key 'chat_template': a string or a list was expected");
  const json::string* first = nullptr;
  for (const json::value& each : *several) {
    const json::object* entry = each.if_object();
    const json::value* name = entry == nullptr ? nullptr : entry->if_contains("name");
    const json::value* text = entry == nullptr ? nullptr : entry->if_contains("template");
    if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string()) {
      throw file_error(where, "key 'chat_template': every entry has a name and a template");
    }
    if (name->get_string() == "default") return &text->get_string();
    if (first == nullptr) first = &text->get_string();
  }
  if (several->size() == 1) return first;
  throw file_error(where, "key 'chat_template': none of the templates is called 'default'");
}

/// "bos_token": a string, or an added token's object with its "content".
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

/// The text in a value, with a few bytes for each value in it.
uint64_t size_of(const json::value& value) {
  constexpr uint64_t kEach = 16;
  uint64_t size = kEach;
  if (const json::string* text = value.if_string()) return size + text->size();
  if (const json::array* array = value.if_array()) {
    for (const json::value& item : *array) size += size_of(item);
  } else if (const json::object* object = value.if_object()) {
    for (const auto& [key, item] : *object) size += key.size() + size_of(item);
  }
  return size;
}

}  // namespace

TemplateLimits limits_for(const json::object& context) {
  uint64_t size = 0;
  for (const auto& [key, value] : context) size += key.size() + size_of(value);
  TemplateLimits limits;
  limits.max_steps += 2 * size;
  limits.max_output_bytes += 4 * size;
  limits.max_memory_bytes += 64 * size;
  return limits;
}

struct ChatTemplate::Impl {
  std::string source;
  jinja::Template parsed;
  json::object tokens;
};

ChatTemplate::ChatTemplate() : impl_(std::make_unique<Impl>()) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source, const std::filesystem::path& where) {
  ChatTemplate out;
  out.impl_->source = checked_source(source, where);
  try {
    out.impl_->parsed = jinja::parse_template(out.impl_->source);
  } catch (const jinja::Fault& fault) {
    throw file_error(where, located(fault));
  }
  return out;
}

ChatTemplate ChatTemplate::load(const std::filesystem::path& path) {
  if (auto found = find(path)) return std::move(*found);
  throw file_error(path,
                   "no chat template: neither chat_template.jinja nor a chat_template in "
                   "tokenizer_config.json");
}

std::optional<ChatTemplate> ChatTemplate::find(const std::filesystem::path& path) {
  std::error_code failed;
  const bool is_directory = std::filesystem::is_directory(path, failed);
  const std::filesystem::path folder = is_directory ? path : path.parent_path();
  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  json::value config = json::object();
  if (std::filesystem::exists(config_path, failed)) {
    config = read_json_file(config_path);
    if (!config.is_object()) throw file_error(config_path, "a JSON object was expected");
  }
  const std::filesystem::path own_file = is_directory ? path / "chat_template.jinja" : path;
  if (is_directory && !std::filesystem::exists(own_file, failed)) {
    return find_in_config(config.get_object(), config_path);
  }
  ChatTemplate out = parse(read_file(own_file, kMaxTemplateBytes), own_file);
  out.impl_->tokens = special_tokens(config.get_object());
  return out;
}

std::optional<ChatTemplate> ChatTemplate::find_in_config(const json::object& config,
                                                         const std::filesystem::path& where) {
  const json::string* text = template_text(config, where);
  if (text == nullptr) return std::nullopt;
  // Lines and columns are those of the key's text, not of the file.
  ChatTemplate out = parse({text->data(), text->size()}, where.string() + ": key 'chat_template'");
  out.impl_->tokens = special_tokens(config);
  return out;
}

Expected<std::string> ChatTemplate::render(const json::object& context) const {
  try {
    const jinja::RenderClock clock{.now = std::time(nullptr)};
    return jinja::Interpreter(impl_->parsed, context, impl_->tokens, limits_for(context), clock).run();
  } catch (const jinja::Fault& fault) {
    if (fault.from_template) return refuse(RequestErrorCode::kInvalid, fault.message);
    return refuse(RequestErrorCode::kInvalid, "chat template: " + located(fault));
  } catch (const std::bad_alloc&) {
    return refuse(RequestErrorCode::kInternal, "chat template: out of memory");
  }
}

const std::string& ChatTemplate::source() const { return impl_->source; }

}  // namespace quire
