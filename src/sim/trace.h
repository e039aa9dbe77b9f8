#pragma once

#include <filesystem>

#include "sim/workload.h"

namespace quire::sim {

struct TraceOptions {
  uint64_t seed = 0;
  uint32_t vocab_size = 32000;
  uint32_t max_requests = UINT32_MAX;  // the first so many
  uint32_t speed_thousandths = 1000;   // arrivals so many times as dense
};

/// Reads what came in at a real service; which of the two forms it is, the file's first byte tells. Times
/// count from the first line.
///
/// - Azure's LLM inference traces (Patel et al. 2024, Splitwise): CSV,
/// TIMESTAMP,ContextTokens,GeneratedTokens,
///   timestamps as "2023-11-16 18:15:46.6805900". They say nothing of contents: no two prompts share a token.
/// - Mooncake's (Qin et al. 2025): one JSON object a line with timestamp (milliseconds), input_length,
///   output_length and hash_ids, one for every 512 tokens of the prompt. Equal ids become equal tokens.
///
/// Throws Error "PATH: line N: WHAT" for lines that are neither, lengths of 0 or over 2^30, and times that
/// run backwards or away; and if there is no request.
Workload read_trace(const std::filesystem::path& path, const TraceOptions& options);

}  // namespace quire::sim
