#include "chat/chat_template.h"

#include "base/error.h"
#include "base/json.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {
namespace {

constexpr std::string_view kConversation = R"({
  "messages": [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is the weather in Oslo?"},
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "c1",
     "function": {"name": "weather", "arguments": {"city": "Oslo", "days": 2}}}]},
    {"role": "tool", "name": "weather", "tool_call_id": "c1", "content": "{\"rain\": true}"},
    {"role": "user", "content": [{"type": "text", "text": "And\ttomorrow? \u00e9\ud83d\ude00"}]}],
  "tools": [{"type": "function", "function": {"name": "weather", "description": "d", "parameters":
     {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}],
  "documents": [{"title": "t", "text": "x"}],
  "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 3, "f": -0.5, "none": null})";

void render(std::string_view source, const json::object& context) {
  try {
    (void)chat::ChatTemplate::parse(source, "fuzz.jinja").render(context);
  } catch (const Error&) {
    return;
  }
}

}  // namespace

void template_source(std::string_view input) {
  static const json::value context = parse_json(kConversation, "conversation");
  render(input, context.as_object());
}

void template_render(std::string_view input) {
  const size_t end = input.find('\0');
  if (end == std::string_view::npos) return;
  try {
    const json::value context = parse_json(input.substr(end + 1), "context");
    if (context.is_object()) render(input.substr(0, end), context.as_object());
  } catch (const Error&) {
    return;
  }
}

}  // namespace quire::fuzz
