#pragma once

#include <string>

#include "base/json.h"
#include "chat/chat_template.h"
#include "chat/chat_templates.h"
#include "serve/fields.h"
#include "serve/openai_schema.h"

namespace quire::serve {

/// Reads messages, tools, documents, chat_template_kwargs, add_generation_prompt, continue_final_message and
/// add_special_tokens. What the template gets, as vLLM does it: text parts of a content joined by newlines, a
/// missing content as "", the arguments of tool calls as objects, tools and documents null if there are none.
ChatPrompt read_chat_prompt(Fields& fields);

/// Makes the messages in `context` (as read_chat_prompt leaves them) those that `chosen` shows: the role
/// `developer` becomes `system`, its older name, where the template does not mention it, in one message with
/// the system and developer messages beside it. The error (kInvalid) names a message with tool calls, or
/// documents, that the template would leave out.
Expected<void> fit_messages(json::object& context, const chat::ChatTemplate& chosen);

/// The text that a model reads for `prompt`, whose context is taken: its messages, fitted to the template
/// that is chosen for them. The error (kInvalid) is fit_messages' or that of ChatTemplates, or tells of a
/// system message that the template does not take, or of a developer's that it leaves out of this
/// conversation.
Expected<std::string> render_chat(const chat::ChatTemplates& templates, ChatPrompt& prompt);

}  // namespace quire::serve
