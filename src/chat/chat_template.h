#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace quire::chat {

/// Templates of real models have a few thousand bytes; any template of this size is parsed within 100 ms.
inline constexpr uint64_t kMaxTemplateBytes = uint64_t{512} << 10;

/// A parsed Jinja template that renders as Python's jinja2 in transformers' settings does (trim_blocks,
/// lstrip_blocks, sandboxed, the loopcontrols extension). Immutable and thread-safe. chat_templates.h chooses
/// among the templates of a model.
class ChatTemplate {
 public:
  /// `tokens`: variables of the template (bos_token and so on) that the context of render() may override.
  /// `title`: its name in errors. Throws Error "WHERE: line L, column C: WHAT" if it does not parse.
  static ChatTemplate parse(std::string_view source, const std::filesystem::path& where,
                            json::object tokens = {}, std::string title = "chat template");

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// `context`: messages, add_generation_prompt, tools, documents, and any other variable of the template.
  /// The error (kInvalid) has the line and column in the template; an error of raise_exception begins with
  /// the template's own message. Steps, text and memory are bounded; the bounds grow with `context`. `now`:
  /// the time for strftime_now, which uses local time.
  Expected<std::string> render(const json::object& context, std::time_t now = std::time(nullptr)) const;
  /// Like render(), but ends with the content of the last message, for the model to continue: transformers'
  /// continue_final_message. An error with param "continue_final_message" if the template does not render
  /// that content.
  Expected<std::string> render_open(json::object context, std::time_t now = std::time(nullptr)) const;

  const std::string& source() const;

  /// Whether `word` is, as a whole, a string or an attribute name in the template. If not, the template does
  /// not treat a role or message field of that name.
  bool mentions(std::string_view word) const;
  /// Whether the template uses a variable of this name, its own variables included. If not, it does not read
  /// an input of that name.
  bool has_variable(std::string_view name) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::chat
