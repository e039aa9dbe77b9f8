#pragma once

#include <string>

#include "serve/fields.h"

namespace quire::serve {

/// The grammar (XGrammar's syntax, see grammar/ebnf.h) that an answer must follow; empty: none. From one of
/// - OpenAI's `response_format`: text, json_object, json_schema (`strict` makes no difference: the schema
///   always holds), and vLLM's structural_tag;
/// - vLLM's `structured_outputs` (json, regex, choice, grammar, json_object, structural_tag) and its older
///   names `guided_json`, `guided_regex`, `guided_choice`, `guided_grammar`;
/// - llama-server's `grammar` (GBNF) and `json_schema`.
/// More than one is an error, and so is what a grammar cannot enforce; of a schema, the error has the JSON
/// pointer.
std::string read_grammar(Fields& fields);

}  // namespace quire::serve
