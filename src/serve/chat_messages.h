#pragma once

#include "base/json.h"
#include "serve/fields.h"
#include "serve/openai_schema.h"

namespace quire {

/// Reads messages, tools, documents, chat_template_kwargs, add_generation_prompt, continue_final_message and
/// add_special_tokens. What the template gets, as vLLM does it: text parts of a content joined by newlines, a
/// missing content as "", the arguments of tool calls as objects, tools and documents null if there are none.
ChatPrompt read_chat_prompt(Fields& fields);

}  // namespace quire
