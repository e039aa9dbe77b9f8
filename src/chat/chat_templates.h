#pragma once

#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "chat/chat_template.h"

namespace quire::chat {

/// The name of the template that is used unless another is named.
inline constexpr std::string_view kDefaultTemplate = "default";

/// The text of a template and its place; lines and columns count in that text.
struct TemplateSource {
  std::string text;
  std::filesystem::path file;
  std::string key{};  // for a file that holds more than the template
};

/// The templates of a Hugging Face directory by name, as in transformers: chat_template.jinja (the default)
/// and additional_chat_templates/NAME.jinja, else tokenizer_config.json's chat_template, a string or a list
/// of names and templates. `config`: the content of tokenizer_config.json. Throws Error with file and key.
std::map<std::string, TemplateSource> template_sources(const std::filesystem::path& dir,
                                                       const json::object& config);

/// "bos_token" and so on of a tokenizer_config.json: strings, or the "content" of added tokens.
json::object special_tokens(const json::object& config);

/// All chat templates of a model, and the choice among them. A template that does not parse is an error only
/// for requests that use it. Immutable and thread-safe.
class ChatTemplates {
 public:
  ChatTemplates() = default;  // none
  ChatTemplates(const std::map<std::string, TemplateSource>& sources, json::object tokens);
  /// One template, as the default.
  explicit ChatTemplates(ChatTemplate only);

  /// The templates of a model directory, or of a .jinja file with a tokenizer_config.json beside it; none if
  /// the directory has none. Throws Error with file and key.
  static ChatTemplates find(const std::filesystem::path& path);
  /// Like find(), but throws Error if there is none.
  static ChatTemplates load(const std::filesystem::path& path);

  bool empty() const { return templates_.empty(); }
  std::vector<std::string> names() const;
  /// "PATH: line L, column C: WHAT" for each template that does not parse.
  std::vector<std::string> faults() const;

  /// Only the template of that name, or of that file if no template has the name; all requests use it. Throws
  /// Error, which lists the names if there is neither or says what is wrong with the template.
  ChatTemplates only(const std::string& name_or_file) const;

  /// Chooses as transformers does: "tool_use" if the context has tools (not null) and there is a template of
  /// that name, else "default", else the only one. The error (kInvalid) lists the names, or says which
  /// template does not parse and where.
  Expected<const ChatTemplate*> choose(const json::object& context) const;
  /// Renders the chosen template; messages, tools and documents are null unless given, add_generation_prompt
  /// is false unless given. A message's reasoning_content, thinking or reasoning (the first one given) is
  /// available under the first two names.
  Expected<std::string> render(json::object context, std::time_t now = std::time(nullptr)) const;
  /// See ChatTemplate.
  Expected<std::string> render_open(json::object context, std::time_t now = std::time(nullptr)) const;

 private:
  struct Entry {
    std::shared_ptr<const ChatTemplate> parsed;  // null if it does not parse
    std::string fault{};                         // with the name of the file
    std::filesystem::path folder{};
  };
  std::map<std::string, Entry> templates_;
  json::object tokens_;
};

}  // namespace quire::chat
