#pragma once

#include <string>

#include "base/json.h"
#include "chat/chat_template.h"
#include "chat/chat_templates.h"
#include "serve/fields.h"
#include "serve/openai_schema.h"

namespace quire::serve {

/// Reads messages, tools, documents, chat_template_kwargs, add_generation_prompt, continue_final_message and
/// add_special_tokens. The template gets them as in vLLM: text parts of a content are joined by newlines, a
/// missing content is "", the arguments of tool calls are objects, unless they are no JSON, tools and
/// documents are null if there are none.
ChatPrompt read_chat_prompt(Fields& fields);

/// Changes the messages in `context` (from read_chat_prompt) to those that the template `chosen` supports: if
/// the template does not mention the role `developer`, it becomes `system`, its older name, in one message
/// with the adjacent system and developer messages; calls that it does not show become text, as the models
/// write them, if that is JSON. The error (kInvalid) names a message with tool calls, or documents, that the
/// template would leave out.
Expected<void> fit_messages(json::object& context, const chat::ChatTemplate& chosen);

/// Whether a template reads tools: as the variable `tools` or `xml_tools` (SmolLM3), or of a system message
/// (Phi-4-mini).
bool reads_tools(const chat::ChatTemplate& chosen);

/// Puts the tools of `context` where the template reads them. REQUIRES: reads_tools().
void give_tools(json::object& context, const chat::ChatTemplate& chosen);

/// Returns the model's input text for `prompt`, and moves its context: the messages, fitted to the template
/// that is chosen for them, calls in the form that it wants. The error (kInvalid) is that of fit_messages or
/// of ChatTemplates, or names a system message that the template does not accept, or a developer message that
/// it leaves out of this conversation.
Expected<std::string> render_chat(const chat::ChatTemplates& templates, ChatPrompt& prompt);

}  // namespace quire::serve
