#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace quire {

/// Bounds of one rendering; templates come with models and are not trusted. What is set here ends a hostile
/// template within about 100 ms and 1 MiB of text; for a long conversation see limits_for().
struct TemplateLimits {
  uint64_t max_steps = 1'000'000;       // nodes evaluated; one is 50 ns of work at most
  uint32_t max_depth = 1000;            // of statements, expressions and values within one another
  uint64_t max_output_bytes = 1 << 20;  // and of any string on the way
  uint64_t max_memory_bytes = 8 << 20;  // of all values together
};

/// Bounds that grow with what the template is given: a prompt is about as long as its messages, and every
/// piece of it may be copied some times on the way.
TemplateLimits limits_for(const json::object& context);

/// A parsed Jinja template that renders as Python's jinja2 in transformers' settings does (trim_blocks,
/// lstrip_blocks, sandboxed, the loopcontrols extension). Immutable and thread-safe.
class ChatTemplate {
 public:
  /// Throws Error "WHERE: line L, column C: WHAT" if the template does not parse.
  static ChatTemplate parse(std::string_view source, const std::filesystem::path& where);
  /// From a model directory (chat_template.jinja, else tokenizer_config.json's chat_template, by name
  /// "default" if there are several) or a .jinja file. bos_token, eos_token and so on come from
  /// tokenizer_config.json. Throws Error if there is none.
  static ChatTemplate load(const std::filesystem::path& path);
  /// As load(), but nothing if a model directory has no template. Throws Error if it has a broken one.
  static std::optional<ChatTemplate> find(const std::filesystem::path& path);
  /// Of the content of a tokenizer_config.json, `where` for errors; nothing if it has no template.
  static std::optional<ChatTemplate> find_in_config(const json::object& config,
                                                    const std::filesystem::path& where);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// `context`: messages, add_generation_prompt, tools, documents, anything else the template asks for.
  /// The error (kInvalid) has the line and column in the template, or the text of raise_exception.
  /// Bounded by limits_for(context).
  Expected<std::string> render(const json::object& context) const;

  const std::string& source() const;

 private:
  ChatTemplate();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
