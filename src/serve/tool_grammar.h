#pragma once

#include <map>
#include <string>
#include <vector>

#include "answer/format.h"
#include "base/error.h"
#include "base/ids.h"
#include "grammar/marked_mask.h"
#include "serve/tool_fields.h"

namespace quire::serve {

/// What an answer has to follow: grammars in XGrammar's syntax (grammar/ebnf.h).
struct AnswerGrammar {
  std::string content;  // of the whole answer; empty: it may be any text
  std::string calls;    // of an answer that consists of calls, which may stand for the content; empty: none
  /// If there are any: `calls` is of what follows each of these marks, and any text may stand around it.
  std::vector<grammar::Mark> marks;

  bool empty() const { return content.empty() && calls.empty(); }
  /// A complete answer has nothing else to say.
  bool ends_answer() const { return !empty() && marks.empty(); }
};

/// The special tokens of a model that are marks, by their text.
using MarkTokens = std::map<std::string, TokenId, std::less<>>;

/// The grammar of answers that consist of calls of these tools, written as the format's models do. A call is
/// written as JSON where the format has no way to write its parameters: for kXml and kPythonic, those that
/// are more than properties of which some are required. `only_strict`: the arguments of tools that are not
/// strict may be any. An error (kInvalid) names the place in the parameters' schema that a grammar cannot
/// enforce.
Expected<std::string> tool_grammar(const ToolWishes& wishes, const answer::ToolFormat& format,
                                   const MarkTokens& tokens, bool only_strict);
/// The grammar of what follows one of certain_marks(), up to the end of the calls there; the arguments of
/// tools that are not strict may be any.
Expected<std::string> strict_tool_grammar(const ToolWishes& wishes, const answer::ToolFormat& format,
                                          const MarkTokens& tokens);
/// The texts after which an answer calls tools: the format's, and where it has none, the beginnings of calls
/// of these tools.
std::vector<grammar::Mark> certain_marks(const ToolWishes& wishes, const answer::ToolFormat& format);

}  // namespace quire::serve
