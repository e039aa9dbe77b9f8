#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "sim/workload.h"

namespace quire::sim {

struct TraceOptions {
  uint64_t seed = 0;
  uint32_t vocab_size = 32000;
  uint32_t max_requests = UINT32_MAX;  // how many requests to read, from the first
  uint32_t speed_thousandths = 1000;   // the rate of arrivals, in thousandths of the recorded one
  /// The tokens of a text, for traces of texts; without it, a quarter of its characters.
  std::function<uint64_t(std::string_view text)> count_tokens = {};
};

/// Reads the requests of a real service from a trace, in one of these formats, told apart by the beginning of
/// the file. A byte order mark is skipped. Times count from the earliest; requests that are out of order are
/// sorted by them, and a note of the workload says so.
///
/// - CSV with a header, whose order of columns does not matter: Azure's LLM inference traces (Patel et al.
///   2024, Splitwise) with the columns TIMESTAMP,ContextTokens,GeneratedTokens, and BurstGPT (Wang et al.
///   2024) with Timestamp, "Request tokens" and "Response tokens". A time is "2023-11-16 18:15:46.6805900" or
///   seconds with decimals. No two prompts share a token. Requests of BurstGPT that failed (without a
///   response) are left out, and a note says how many.
/// - Mooncake's (Qin et al. 2025): one JSON object per line with timestamp (milliseconds, fractions too),
///   input_length, output_length and hash_ids, one for every 512 tokens of the prompt, of up to 64 bits.
///   Equal ids become equal tokens.
/// - ShareGPT: a JSON array of conversations, read one at a time, with from and value for each message. A
/// turn
///   is all that the human says before an answer, and that answer; a later turn continues the former one. It
///   has no times (Workload::has_times): give_times.
/// - quire's own decision logs (record/run_record.h), with all their parts: prompts that begin with the same
///   full blocks do so here too, with the answers' tokens being others; answers are as long as they were. Of
///   one that ends before its run did, a note says how many requests had not ended.
///
/// CSV and Mooncake's may have ttft_deadline_ms, priority and tenant (any text) for any request; one whose
/// line lacks them, or has an empty value in a CSV, has the defaults of SimRequest, and is of a tenant of its
/// own. A decision log has them.
///
/// Throws Error "PATH: line N: WHAT", with the field's name, for lines in none of them, lengths of 0 or over
/// 2^30, times that are too large, and if there is no request; of a decision log as RunReader does.
Workload read_trace(const std::filesystem::path& path, const TraceOptions& options);

}  // namespace quire::sim
