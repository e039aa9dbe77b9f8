#pragma once

#include <filesystem>

#include "sim/workload.h"

namespace quire::sim {

struct TraceOptions {
  uint64_t seed = 0;
  uint32_t vocab_size = 32000;
  uint32_t max_requests = UINT32_MAX;  // how many requests to read, from the first
  uint32_t speed_thousandths = 1000;   // the rate of arrivals, in thousandths of the recorded one
};

/// Reads the requests of a real service from a trace, in one of two formats, told apart by the first byte of
/// the file. Times count from the first line.
///
/// - Azure's LLM inference traces (Patel et al. 2024, Splitwise): CSV with the columns
///   TIMESTAMP,ContextTokens,GeneratedTokens and timestamps such as "2023-11-16 18:15:46.6805900". They do
///   not describe contents: no two prompts share a token.
/// - Mooncake's (Qin et al. 2025): one JSON object per line with timestamp (milliseconds), input_length,
///   output_length and hash_ids, one for every 512 tokens of the prompt. Equal ids become equal tokens.
///
/// Throws Error "PATH: line N: WHAT" for lines in neither format, lengths of 0 or over 2^30, times that run
/// backwards or are too large, and if there is no request.
Workload read_trace(const std::filesystem::path& path, const TraceOptions& options);

}  // namespace quire::sim
