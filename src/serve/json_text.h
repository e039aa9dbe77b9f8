#pragma once

#include <string>
#include <string_view>

// Writes JSON directly, for output that is produced for each token.
namespace quire::serve {

/// Appends `bytes` as a JSON string with its quotes. Invalid UTF-8 becomes U+FFFD, one for each maximal
/// subpart (Unicode 15, section 3.9).
void append_json_string(std::string& out, std::string_view bytes);

/// Appends a log probability. JSON has no infinities: values below -9999 (also -inf) and NaN become -9999, as
/// in vLLM.
void append_json_logprob(std::string& out, float logprob);

}  // namespace quire::serve
