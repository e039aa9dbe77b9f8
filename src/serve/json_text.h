#pragma once

#include <string>
#include <string_view>

// Writing JSON by hand, for what is written once per token.
namespace quire::serve {

/// Appends `bytes` as a JSON string with its quotes. Bytes that are no UTF-8 come out as U+FFFD, one for each
/// maximal subpart (Unicode 15, section 3.9).
void append_json_string(std::string& out, std::string_view bytes);

/// Appends a log probability. JSON has no infinities: what is below -9999 (so -inf) and NaN become -9999,
/// as vLLM writes them.
void append_json_logprob(std::string& out, float logprob);

}  // namespace quire::serve
