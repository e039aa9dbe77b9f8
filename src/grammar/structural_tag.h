#pragma once

#include <string>

#include <boost/json/fwd.hpp>
#include <tl/expected.hpp>

#include "grammar/schema.h"

namespace quire::grammar {

inline constexpr size_t kMaxTagParts = 2'000;  // formats in one structural tag

/// The grammar, in XGrammar's syntax (ebnf.h), of a structural tag: a text of which parts follow formats. In
/// both forms that vLLM 0.32 takes:
/// - {"format": F}, with F one of const_string, json_schema, regex, grammar (GBNF, gbnf.h), any_text,
///   sequence, or, optional, star, plus, repeat, tag, triggered_tags, tags_with_separator, as XGrammar 0.2.8
///   describes them;
/// - {"structures": [{"begin", "schema", "end"}], "triggers": [...]}, which is triggered_tags.
/// Text that may be any, any_text or what stands between triggered tags, ends where the tag around it ends;
/// elsewhere than at the end of a sequence it needs `excludes`.
///
/// Refused, by name: formats of tokens, max_tokens, styles of json_schema other than json, and what the
/// formats' own grammars refuse. The fault's pointer is one into `tag`. Pure.
tl::expected<std::string, SchemaFault> structural_tag_grammar(const boost::json::value& tag);

}  // namespace quire::grammar
