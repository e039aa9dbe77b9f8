#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "grammar/gbnf.h"
#include "grammar/schema.h"
#include "grammar/structural_tag.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {

void schema(std::string_view input) {
  try {
    const json::value read = parse_json(input, "schema", 64);
    (void)grammar::schema_grammar(read);
    (void)grammar::structural_tag_grammar(read);
  } catch (const Error&) {
    return;
  }
}

void grammar_text(std::string_view input) {
  if (!is_valid_utf8(input)) return;  // the body of a request is
  (void)grammar::regex_grammar(input);
  (void)grammar::gbnf_grammar(input);
}

}  // namespace quire::fuzz
