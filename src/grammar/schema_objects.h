#pragma once

#include <vector>

#include "grammar/schema_writer.h"

namespace quire::grammar {

/// Appends the objects that a term permits, if there are any. Throws Refused.
void write_object(SchemaWriter& writer, const Term& term, std::vector<Rules::Alternative>& out);

}  // namespace quire::grammar
