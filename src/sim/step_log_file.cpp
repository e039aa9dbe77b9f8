#include "sim/step_log_file.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"
#include "base/json.h"

namespace quire::sim {
namespace {

constexpr uint64_t kMostBytesOfALog = uint64_t{4} << 30;
constexpr int64_t kMostOfAStep =
    1'000'000'000'000'000;                   // nanoseconds, or tokens: sums of them fit in 64 bits
constexpr uint64_t kMostSequences = 65'536;  // --max-num-seqs
constexpr int64_t kSlack = 100'000'000;      // nanoseconds, by which clocks and steps in a row may differ

/// The columns must be those that this version writes. Returns the most tokens of a step; 0: it is not known.
uint64_t read_head(std::string_view line, const std::filesystem::path& path, StepLogFile& out) {
  json::value value;
  try {
    value = parse_json(line, path);
  } catch (const Error&) {
    throw file_error(path, "line 1: is no JSON object: this is no step log, or its head is missing");
  }
  if (!value.is_object() || !value.get_object().contains("step_log")) {
    throw file_error(path, "line 1: has no 'step_log': this is no step log, or its head is missing");
  }
  const JsonObject head(value, path);
  if (const int64_t version = head.integer("step_log", 0, INT64_MAX); version != backend::kStepLogVersion) {
    throw file_error(path, fmt::format("is a step log of version {}, and this program reads version {}",
                                       version, backend::kStepLogVersion));
  }
  out.model = head.string_or("model", "");
  out.device = head.string_or("device", "");
  out.machine = head.string_or("machine", "");
  out.threads = static_cast<uint32_t>(head.integer_or("threads", 0, 0, UINT32_MAX));
  out.warning = head.string_or("warning", "");
  json::array columns;
  backend::StepRecord none;
  backend::StepRecord::for_each_field(none,
                                      [&](std::string_view name, auto&) { columns.emplace_back(name); });
  const json::value* const found = head.find("columns");
  if (found == nullptr || *found != json::value(columns)) {
    throw head.error("columns", fmt::format("must be {}", json::serialize(columns)));
  }
  return static_cast<uint64_t>(head.integer_or("budget", 0, 0, UINT32_MAX));
}

/// Throws Error if no step has such counts. `most`: its tokens, if it is known.
void check_counts(const backend::StepRecord& record, uint64_t most, const std::string& place) {
  const backend::StepWork& work = record.work;
  const auto within = [&](const char* name, uint64_t count, uint64_t least, uint64_t most_of) {
    if (count >= least && count <= most_of) return;
    const bool above = count > most_of;
    throw Error(fmt::format("{}: '{}' is {}, and what else the log says allows {} {}", place, name, count,
                            above ? "at most" : "at least", above ? most_of : least));
  };
  const uint64_t tokens = most > 0 ? most : std::max(record.budget, kMostSequences);
  within("budget", record.budget, 0, UINT32_MAX);
  within("decoding", work.decoding, 0, tokens);
  within("decode_context", work.decode_context, 0, work.decoding * UINT32_MAX);
  within("prefill_tokens", work.prefill_tokens, 0, tokens - work.decoding);
  within("chunks", work.chunks, work.prefill_tokens > 0 ? 1 : 0, work.prefill_tokens);
  within("chunk_squares", work.chunk_squares, work.prefill_tokens, work.prefill_tokens * work.prefill_tokens);
  within("chunk_prefix", work.chunk_prefix, 0, work.prefill_tokens * UINT32_MAX);
  within("sampled_rows", work.sampled_rows, work.decoding, work.decoding + work.chunks);
  within("moved_blocks", work.moved_blocks, 0, UINT32_MAX);
  within("copies", work.copies, 0, UINT32_MAX);
  within("logit_rows", work.logit_rows, work.sampled_rows, work.sampled_rows + work.tokens());
}

/// Throws Error if no step takes such times. Those of several steps in flight overlap.
void check_times(const backend::StepRecord& record, const std::string& place) {
  if (record.whole == 0) throw Error(place + ": 'whole' is 0, and every step takes time");
  const int64_t computed = record.compute + record.sample;
  if (record.open > 1 || computed <= 2 * record.whole + kSlack) return;
  throw Error(fmt::format("{}: 'compute' and 'sample' are {}, and 'whole', which has them, is {}", place,
                          computed, record.whole));
}

backend::StepRecord record_of(std::string_view line, uint64_t most_tokens, const std::string& place) {
  boost::system::error_code failed;
  const json::value value = json::parse(line, failed);
  const json::array* const row = failed ? nullptr : value.if_array();
  if (row == nullptr) throw Error(place + ": is no JSON array");
  size_t wanted = 0;
  backend::StepRecord record;
  backend::StepRecord::for_each_field(record, [&](std::string_view, auto&) { ++wanted; });
  if (row->size() != wanted) {
    throw Error(fmt::format("{}: has {} values where {} are wanted", place, row->size(), wanted));
  }
  size_t at = 0;
  backend::StepRecord::for_each_field(record, [&](std::string_view name, auto& field) {
    const int64_t* const number = (*row)[at++].if_int64();
    if (number == nullptr || *number < 0) throw Error(fmt::format("{}: '{}' is no count", place, name));
    if (*number > kMostOfAStep && name != "started" && name != "step") {
      throw Error(fmt::format("{}: '{}' is {}, more than any step has", place, name, *number));
    }
    field = static_cast<std::remove_reference_t<decltype(field)>>(*number);
  });
  if (record.open == 0) throw Error(place + ": 'open' is 0, and a step is itself in flight");
  check_counts(record, most_tokens, place);
  check_times(record, place);
  return record;
}

}  // namespace

StepLogFile read_step_log(const std::filesystem::path& path) {
  const std::string text = read_file(path, kMostBytesOfALog);
  StepLogFile out;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  uint64_t most_tokens = 0;
  for (uint64_t number = 1; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos && number > 1) {
      out.cut_line = number;
      break;
    }
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (number == 1) {
      most_tokens = read_head(line, path, out);
    } else {
      out.records.push_back(record_of(line, most_tokens, fmt::format("{}: line {}", path.string(), number)));
    }
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  if (out.records.empty()) throw file_error(path, "holds no step");
  return out;
}

}  // namespace quire::sim
