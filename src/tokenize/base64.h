#pragma once

#include <string>
#include <string_view>

namespace quire::tokenize {

/// Decodes `text` (RFC 4648, section 4, padded, no white space) and appends the bytes. False, with `out`
/// unchanged, if it is not base64.
bool append_from_base64(std::string& out, std::string_view text);

}  // namespace quire::tokenize
