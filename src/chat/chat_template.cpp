#include "chat/chat_template.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/file_error.h"
#include "base/utf8.h"
#include "jinja/template.h"
#include "jinja/text.h"

namespace quire::chat {
namespace {

/// A message may contain any amount of the template's own text; only this much is shown.
std::string_view told(std::string_view message) { return utf8_prefix(message, 1000); }

std::string located(const jinja::Fault& fault) {
  return fmt::format("line {}, column {}: {}", fault.line, fault.column, told(fault.message));
}

std::string checked_source(std::string_view source, const std::filesystem::path& where) {
  if (source.size() > kMaxTemplateBytes) {
    throw file_error(where,
                     fmt::format("a template of {} bytes, more than {}", source.size(), kMaxTemplateBytes));
  }
  if (!is_valid_utf8(source)) throw file_error(where, "the template is not valid UTF-8");
  return std::string(source);
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

/// Limits that grow with the template's input: a prompt is about as long as its messages, and every piece of
/// it may be copied a few times.
jinja::Limits limits_for(const json::object& context) {
  uint64_t size = 0;
  for (const auto& [key, value] : context) size += key.size() + size_of(value);
  jinja::Limits limits;
  limits.max_steps += 2 * size;
  limits.max_output_bytes += 4 * size;
  limits.max_memory_bytes += 64 * size;
  return limits;
}

/// The mark that transformers appends to the last message to find its end in the rendered text.
constexpr std::string_view kOpenEnd = "CONTINUE_FINAL_MESSAGE_TAG ";

/// The text of the last message, or of the last of its parts that has one; nullptr if there is none.
json::value* last_text(json::object& context) {
  json::value* messages = context.if_contains("messages");
  if (messages == nullptr || !messages->is_array() || messages->get_array().empty()) return nullptr;
  json::object* message = messages->get_array().back().if_object();
  json::value* content = message == nullptr ? nullptr : message->if_contains("content");
  if (content == nullptr || content->is_string()) return content;
  json::array* parts = content->if_array();
  if (parts == nullptr) return nullptr;
  for (size_t i = parts->size(); i > 0; --i) {
    json::object* part = (*parts)[i - 1].if_object();
    json::value* text = part == nullptr ? nullptr : part->if_contains("text");
    if (text != nullptr) return text->is_string() ? text : nullptr;
  }
  return nullptr;
}

}  // namespace

struct ChatTemplate::Impl {
  std::string source;
  jinja::Template parsed;
  json::object tokens;
  std::string title;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source, const std::filesystem::path& where,
                                 json::object tokens, std::string title) {
  std::string text = checked_source(source, where);
  try {
    jinja::Template parsed = jinja::Template::parse(text);
    return ChatTemplate(std::make_unique<Impl>(
        Impl{std::move(text), std::move(parsed), std::move(tokens), std::move(title)}));
  } catch (const jinja::Fault& fault) {
    throw file_error(where, located(fault));
  }
}

Expected<std::string> ChatTemplate::render(const json::object& context, std::time_t now) const {
  const std::string& title = impl_->title;
  try {
    const jinja::RenderClock clock{.now = now};
    return impl_->parsed.render(context, impl_->tokens, limits_for(context), clock);
  } catch (const jinja::Fault& fault) {
    return refuse(RequestErrorCode::kInvalid,
                  fault.from_template ? fmt::format("{} (raised by the {}, line {}, column {})",
                                                    told(fault.message), title, fault.line, fault.column)
                                      : fmt::format("{}: {}", title, located(fault)));
  } catch (const std::bad_alloc&) {
    return refuse(RequestErrorCode::kInternal, title + ": out of memory");
  }
}

Expected<std::string> ChatTemplate::render_open(json::object context, std::time_t now) const {
  const auto failed = [](const char* why) {
    return refuse(RequestErrorCode::kInvalid, fmt::format("continue_final_message: {}", why),
                  "continue_final_message");
  };
  json::value* text = last_text(context);
  if (text == nullptr) return failed("the last message has no text to continue");
  const std::string content(text->get_string());
  text->get_string() += kOpenEnd;
  auto rendered = render(context, now);
  if (!rendered) return rendered;
  const size_t mark = rendered->rfind(kOpenEnd.substr(0, kOpenEnd.size() - 1));
  if (mark == std::string::npos ||
      rendered->find(jinja::strip(content, nullptr, true, true)) == std::string::npos) {
    return failed("the chat template does not reproduce the last message unchanged");
  }
  const bool whole = std::string_view(*rendered).substr(mark).starts_with(kOpenEnd);
  rendered->resize(mark);
  // If the mark lost its trailing space, the template trims, so the content's own trailing space is removed
  // too.
  if (!whole) rendered->resize(jinja::strip(*rendered, nullptr, false, true).size());
  return rendered;
}

const std::string& ChatTemplate::source() const { return impl_->source; }

bool ChatTemplate::mentions(std::string_view word) const { return impl_->parsed.mentions(word); }

bool ChatTemplate::has_variable(std::string_view name) const { return impl_->parsed.has_variable(name); }

}  // namespace quire::chat
