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

/// Those of real models have some thousand bytes; one of this size is parsed within 100 ms, whatever it is.
inline constexpr uint64_t kMaxTemplateBytes = uint64_t{512} << 10;

/// A parsed Jinja template that renders as Python's jinja2 in transformers' settings does (trim_blocks,
/// lstrip_blocks, sandboxed, the loopcontrols extension). Immutable and thread-safe. Which of a model's
/// templates that is: chat_templates.h.
class ChatTemplate {
 public:
  /// `tokens`: variables that the template sees unless render() is given others (bos_token and so on).
  /// `title`: what its errors call it. Throws Error "WHERE: line L, column C: WHAT" if it does not parse.
  static ChatTemplate parse(std::string_view source, const std::filesystem::path& where,
                            json::object tokens = {}, std::string title = "chat template");

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// `context`: messages, add_generation_prompt, tools, documents, anything else the template asks for.
  /// The error (kInvalid) has the line and column in the template; that of raise_exception begins with the
  /// template's own words. Bounded in steps, text and memory; the
  /// bounds grow with `context`. `now`: what strftime_now says, in local time.
  Expected<std::string> render(const json::object& context, std::time_t now = std::time(nullptr)) const;
  /// As render(), but ends with the content of the last message, for the model to go on with: transformers'
  /// continue_final_message. An error with param "continue_final_message" if the template does not show it.
  Expected<std::string> render_open(json::object context, std::time_t now = std::time(nullptr)) const;

  const std::string& source() const;

  /// Whether `word` is a string or the name of an attribute somewhere in it, as a whole. A role or a field of
  /// the messages that it does not mention it cannot treat by name.
  bool mentions(std::string_view word) const;
  /// Whether a variable of this name stands somewhere in it, its own ones included. What it is given under
  /// another name it does not read.
  bool has_variable(std::string_view name) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::chat
