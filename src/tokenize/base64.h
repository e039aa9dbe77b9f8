#pragma once

#include <string>
#include <string_view>

namespace quire::tokenize {

/// Appends the bytes that `text` (RFC 4648, section 4, padded, no white space) stands for. False, with `out`
/// as it was, if it is no base64.
bool append_from_base64(std::string& out, std::string_view text);

}  // namespace quire::tokenize
