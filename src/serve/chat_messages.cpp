#include "serve/chat_messages.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "answer/format.h"
#include "base/json_memory.h"
#include "base/trim.h"

namespace quire::serve {
namespace {

constexpr size_t kMaxMessages = 16384;
constexpr size_t kMaxArgumentsDepth = 64;  // of a call's
constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

/// The text of a message: a string, or an array of text parts.
std::string read_content(Fields& message, bool required) {
  const json::value* content = message.get("content");
  if (content == nullptr) {
    if (required) message.fail("content", "is missing");
    return {};
  }
  if (const auto* text = content->if_string()) return std::string(*text);
  const json::array* parts = content->if_array();
  if (parts == nullptr) {
    message.fail("content", "must be a string or an array of text parts");
    return {};
  }
  std::string joined;
  for (size_t i = 0; i < parts->size(); ++i) {
    const std::string name = fmt::format("content[{}]", i);
    const json::object* part = (*parts)[i].if_object();
    const json::value* type = part == nullptr ? nullptr : part->if_contains("type");
    if (type == nullptr || !type->is_string()) {
      message.fail(name, "must be an object with a type");
      return {};
    }
    if (type->get_string() != "text") {
      message.unsupported(name, "is not supported: only parts of type text are");
      return {};
    }
    const json::value* text = part->if_contains("text");
    if (text == nullptr || !text->is_string()) {
      message.fail(name + ".text", "must be a string");
      return {};
    }
    if (i > 0) joined += '\n';
    joined += text->get_string();
  }
  return joined;
}

/// A copy of the calls with their arguments parsed: the API writes them as text, templates want objects.
json::array read_tool_calls(Fields& message, const json::array& calls) {
  json::array out;
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string name = fmt::format("tool_calls[{}]", i);
    const json::object* call = calls[i].if_object();
    const json::value* function = call == nullptr ? nullptr : call->if_contains("function");
    if (function == nullptr || !function->is_object()) {
      message.fail(name, "must be an object with a function");
      return {};
    }
    json::object copy = *call;
    json::object& called = copy["function"].as_object();
    called.erase("parsed_arguments");  // OpenAI's client adds them
    if (const json::value* arguments = called.if_contains("arguments")) {
      if (const auto* text = arguments->if_string()) {
        try {
          // In the memory of the body, which is bounded.
          json::value parsed =
              text->empty() ? json::object() : parse_json(*text, name, kMaxArgumentsDepth, calls.storage());
          called["arguments"] = std::move(parsed);
        } catch (const Error&) {
          // A model may have written it, or its answer was cut: the template gets it as it is.
        }
      }
    }
    out.push_back(std::move(copy));
  }
  return out;
}

/// Fields of an assistant's answer that clients send back unchanged.
void ignore_empty(Fields& message, std::string_view name) {
  const json::value* value = message.get(name);
  if (value == nullptr) return;
  const auto* list = value->if_array();
  if (list == nullptr || !list->empty()) message.unsupported(name);
}

json::object read_message(Fields& message) {
  json::object out;
  const auto role = message.string("role");
  if (!role) {
    message.fail("role", "is missing");
    return out;
  }
  if (*role == "function") {
    message.unsupported("role", "function is not supported: use 'tool' with a tool_call_id");
    return out;
  }
  if (std::find(kRoles.begin(), kRoles.end(), *role) == kRoles.end()) {
    message.fail("role", fmt::format("must be one of {}", fmt::join(kRoles, ", ")));
    return out;
  }
  out["role"] = *role;
  out["content"] = read_content(message, *role != "assistant");
  for (const std::string_view name : {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"}) {
    if (auto text = message.string(name)) out[name] = *text;
  }
  if (const json::array* calls = message.array("tool_calls"); calls != nullptr && !calls->empty()) {
    out["tool_calls"] = read_tool_calls(message, *calls);
  }
  for (const std::string_view name : {"refusal", "audio", "annotations", "function_call"}) {
    ignore_empty(message, name);
  }
  message.get("parsed");  // OpenAI's client adds what the content says as a value
  return out;
}

json::array read_messages(Fields& fields) {
  json::array out;
  const json::array* messages = fields.array("messages");
  if (messages == nullptr || messages->empty()) {
    fields.fail("messages", "must hold at least one message");
    return out;
  }
  if (messages->size() > kMaxMessages) {
    fields.fail("messages", fmt::format("must hold at most {} messages", kMaxMessages));
    return out;
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string name = fmt::format("messages[{}]", i);
    const json::object* message = (*messages)[i].if_object();
    if (message == nullptr) {
      fields.fail(name, "must be an object");
      return out;
    }
    Fields inner(*message, name + ".");
    for (const auto& member : *message) {
      if (member.value().is_null()) inner.get(member.key());  // whatever a client's type has more
    }
    out.push_back(read_message(inner));
    if (auto error = inner.finish()) {
      fields.fail(std::move(*error));
      return out;
    }
  }
  return out;
}

json::value read_objects(Fields& fields, std::string_view name) {
  const json::array* list = fields.array(name);
  if (list == nullptr || list->empty()) return nullptr;
  for (size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_object()) fields.fail(fmt::format("{}[{}]", name, i), "must be an object");
  }
  return *list;
}

json::value read_tools(Fields& fields) {
  json::value tools = read_objects(fields, "tools");
  if (!tools.is_array() || !fields.ok()) return tools;
  const json::array& list = tools.get_array();
  for (size_t i = 0; i < list.size(); ++i) {
    const json::object& tool = list[i].get_object();
    const json::value* type = tool.if_contains("type");
    const json::value* function = tool.if_contains("function");
    if (type == nullptr || *type != "function" || function == nullptr || !function->is_object()) {
      fields.fail(fmt::format("tools[{}]", i), "must be {\"type\": \"function\", \"function\": {...}}");
    }
  }
  return tools;
}

}  // namespace

ChatPrompt read_chat_prompt(Fields& fields) {
  ChatPrompt prompt;
  json::array messages = read_messages(fields);
  const bool go_on = fields.boolean("continue_final_message", false);
  const bool add_prompt = fields.boolean("add_generation_prompt", !go_on);
  prompt.add_special_tokens = fields.boolean("add_special_tokens", false);
  if (go_on && add_prompt) {
    fields.fail("continue_final_message", "and add_generation_prompt cannot both be true");
  }
  prompt.continue_final_message = go_on;

  json::object& context = prompt.context;
  context["messages"] = std::move(messages);
  context["tools"] = read_tools(fields);
  context["documents"] = read_objects(fields, "documents");
  context["add_generation_prompt"] = add_prompt;
  if (const json::object* extra = fields.object("chat_template_kwargs")) {
    for (const auto& [name, value] : *extra) {
      if (context.contains(name)) {
        fields.fail("chat_template_kwargs", fmt::format("may not set {}", std::string_view(name)));
        break;
      }
      context[name] = value;
    }
  }
  return prompt;
}

namespace {

bool has_role(const json::value& message, std::string_view role) {
  return message.as_object().at("role").as_string() == role;
}
bool is_developers(const json::value& message) { return has_role(message, "developer"); }
bool is_systems(const json::value& message) { return has_role(message, "system"); }

/// Developer messages become system messages, merged with adjacent ones, because a template may render only
/// one system message, the last.
void merge_instructions(json::array& messages) {
  json::array merged(messages.storage());
  for (auto next = messages.begin(); next != messages.end();) {
    const auto end = std::find_if_not(next, messages.end(),
                                      [](const auto& m) { return is_systems(m) || is_developers(m); });
    if (std::find_if(next, end, is_developers) == end) {  // unchanged, with its neighbours
      const auto stop = std::max(end, std::next(next));
      merged.insert(merged.end(), std::make_move_iterator(next), std::make_move_iterator(stop));
      next = stop;
      continue;
    }
    json::object& all = merged.emplace_back(std::move(*next)).as_object();
    all.at("role") = "system";
    for (++next; next != end; ++next) {
      json::string& content = all.at("content").as_string();
      content.append("\n\n");
      content.append(next->as_object().at("content").as_string());
    }
  }
  messages = std::move(merged);
}

/// The texts of all system messages.
std::vector<std::string> system_texts(const json::array& messages) {
  std::vector<std::string> texts;
  for (const json::value& message : messages) {
    const json::object& fields = message.as_object();
    if (is_systems(message)) texts.emplace_back(trim(fields.at("content").as_string()));
  }
  return texts;
}

/// The first message with the role system, as fit_messages leaves them; none if there is no such message.
std::optional<size_t> first_system_message(const json::object& context) {
  const json::array& messages = context.at("messages").as_array();
  const auto found = std::ranges::find_if(messages, is_systems);
  if (found == messages.end()) return std::nullopt;
  return static_cast<size_t>(found - messages.begin());
}

/// Writes the calls of a message into its content, as models of the format write them, for a template that
/// does not show calls. False: it is not known how.
bool write_calls(json::object& message, const answer::ToolFormat* format) {
  if (format == nullptr || format->syntax != answer::CallSyntax::kJson) return false;
  std::string text;
  for (const json::value& call : message.at("tool_calls").as_array()) {
    const json::object& function = call.at("function").as_object();
    const json::value* const name = function.if_contains("name");
    const json::value* const arguments = function.if_contains("arguments");
    const json::object written = {
        {"name", name == nullptr ? json::value("") : *name},
        {format->arguments_key, arguments == nullptr ? json::object() : *arguments}};
    text += text.empty() ? format->before : format->separator;
    text += json::serialize(written);
  }
  json::string& content = message.at("content").as_string();
  if (!content.empty()) content += '\n';
  content += text;
  content += format->behind;
  message.erase("tool_calls");
  return true;
}

/// Some templates raise an exception for a system message, whatever else is there.
bool takes_system_messages(const chat::ChatTemplate& chosen) {
  const json::object user = {{"role", "user"}, {"content", "a"}};
  const json::object system = {{"role", "system"}, {"content", "a"}};
  const auto renders = [&](json::array messages) {
    return chosen
        .render({{"messages", std::move(messages)},
                 {"tools", nullptr},
                 {"documents", nullptr},
                 {"add_generation_prompt", true}})
        .has_value();
  };
  return renders({system, user}) || !renders({user});
}

}  // namespace

Expected<void> fit_messages(json::object& context, const chat::ChatTemplate& chosen) {
  json::array& messages = context.at("messages").as_array();
  const json::value* documents = context.if_contains("documents");
  if (documents != nullptr && !documents->is_null() && !chosen.has_variable("documents")) {
    return refuse(RequestErrorCode::kInvalid,
                  "documents is not supported: this model's chat template does not read documents",
                  "documents");
  }
  const bool shows_calls = chosen.mentions("tool_calls");
  for (size_t i = 0; i < messages.size() && !shows_calls; ++i) {
    json::object& message = messages[i].as_object();
    if (!message.contains("tool_calls") || write_calls(message, answer::tool_format_of(chosen.source())))
      continue;
    std::string name = fmt::format("messages[{}].tool_calls", i);
    std::string what =
        fmt::format("{} is not supported: this model's chat template does not show tool calls", name);
    return refuse(RequestErrorCode::kInvalid, std::move(what), std::move(name));
  }
  if (!chosen.mentions("developer")) merge_instructions(messages);
  return {};
}

namespace {

/// How a template wants the calls in messages.
struct CallForm {
  bool null_content = false;    // the missing content of a message with calls is null, not ""
  bool text_arguments = false;  // as JSON text, not as an object
};

bool has_calls(const json::object& message) { return message.contains("tool_calls"); }

void apply(const CallForm& form, json::array& messages) {
  for (json::value& each : messages) {
    json::object& message = each.as_object();
    if (!has_calls(message)) continue;
    if (form.null_content && message.at("content").as_string().empty()) message["content"] = nullptr;
    if (!form.text_arguments) continue;
    for (json::value& call : message.at("tool_calls").as_array()) {
      json::value* arguments = call.at("function").as_object().if_contains("arguments");
      if (arguments != nullptr && !arguments->is_string()) *arguments = json::serialize(*arguments);
    }
  }
}

/// Tried out with a call of a name that nothing else has. Templates differ: some look for a content of null
/// to find calls, some join the arguments to a text.
CallForm call_form_of(const chat::ChatTemplate& chosen, const json::object& context) {
  constexpr std::string_view kName = "quire_tries_a_call";
  const json::value call = {{"id", "call00001"},
                            {"type", "function"},
                            {"function", {{"name", kName}, {"arguments", json::object{{"a", "b"}}}}}};
  const json::array conversation = {
      {{"role", "user"}, {"content", "a"}},
      {{"role", "assistant"}, {"content", ""}, {"tool_calls", json::array{call}}},
      {{"role", "tool"}, {"content", "c"}, {"tool_call_id", "call00001"}}};
  for (const CallForm form : {CallForm{}, CallForm{.null_content = true}, CallForm{.text_arguments = true},
                              CallForm{.null_content = true, .text_arguments = true}}) {
    json::object tried;
    for (const auto& [name, value] : context) {  // what may be long is left out
      const bool is_list = name == "messages" || name == "tools" || name == "documents";
      tried[name] = is_list ? json::value(nullptr) : value;
    }
    json::array messages = conversation;
    apply(form, messages);
    tried["messages"] = std::move(messages);
    const auto text = chosen.render(tried);
    if (text && text->find(kName) != std::string::npos) return form;
  }
  return {};
}

}  // namespace

void give_tools(json::object& context, const chat::ChatTemplate& chosen) {
  const json::value& tools = context.at("tools");
  if (chosen.has_variable("tools") || !tools.is_array()) return;
  if (chosen.has_variable("xml_tools")) {
    context.emplace("xml_tools", tools);
    return;
  }
  json::array functions;
  for (const json::value& tool : tools.get_array()) functions.push_back(tool.at("function"));
  json::array& messages = context.at("messages").as_array();
  if (!is_systems(messages.front()))
    messages.insert(messages.begin(), json::object{{"role", "system"}, {"content", ""}});
  messages.front().as_object()["tools"] = json::serialize(functions);
}

bool reads_tools(const chat::ChatTemplate& chosen) {
  return chosen.has_variable("tools") || chosen.has_variable("xml_tools") || chosen.mentions("tools");
}

Expected<std::string> render_chat(const chat::ChatTemplates& templates, ChatPrompt& prompt) {
  const auto chosen = templates.choose(prompt.context);
  std::optional<size_t> system;
  std::vector<std::string> instructions;
  if (chosen) {
    const bool developer = std::ranges::any_of(prompt.context.at("messages").as_array(), is_developers);
    if (auto fits = fit_messages(prompt.context, **chosen); !fits)
      return tl::make_unexpected(std::move(fits.error()));
    system = first_system_message(prompt.context);
    json::array& messages = prompt.context.at("messages").as_array();
    if (std::ranges::any_of(messages, [](const json::value& each) { return has_calls(each.as_object()); })) {
      apply(call_form_of(**chosen, prompt.context), messages);
    }
    if (developer) instructions = system_texts(prompt.context.at("messages").as_array());
  }
  auto text = prompt.continue_final_message ? templates.render_open(std::move(prompt.context))
                                            : templates.render(std::move(prompt.context));
  if (!text && system && !takes_system_messages(**chosen)) {
    std::string name = fmt::format("messages[{}].role", *system);
    std::string what = fmt::format(
        "{} is not supported: this model's chat template accepts no system or developer message", name);
    return refuse(RequestErrorCode::kInvalid, std::move(what), std::move(name));
  }
  if (!text && text.error().param.empty()) text.error().param = "messages";
  // Some templates render a system message only at certain places.
  for (const std::string& instruction : instructions) {
    if (text && text->find(instruction) == std::string::npos) {
      return refuse(RequestErrorCode::kInvalid,
                    "a system or developer message is not supported at this place: this model's chat "
                    "template omits it from this conversation",
                    "messages");
    }
  }
  return text;
}

}  // namespace quire::serve
