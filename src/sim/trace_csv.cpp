#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "control/request.h"
#include "sim/trace_formats.h"
#include "sim/trace_lines.h"

namespace quire::sim {
namespace {

constexpr std::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr size_t kNoColumn = SIZE_MAX;

/// Takes a decimal number of exactly `digits` digits from the front of `text`.
std::optional<int64_t> take_digits(std::string_view& text, size_t digits) {
  if (text.size() < digits) return std::nullopt;
  const auto value = parse_whole(text.substr(0, digits), INT64_MAX);
  if (!value) return std::nullopt;
  text.remove_prefix(digits);
  return static_cast<int64_t>(*value);
}

bool take(std::string_view& text, std::string_view what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

/// Days since 1970-01-01 in the Gregorian calendar; the year starts in March, so that the leap day ends it.
int64_t days_since_epoch(int64_t year, int64_t month, int64_t day) {
  const int64_t y = month <= 2 ? year - 1 : year;
  const int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  return y * 365 + y / 4 - y / 100 + y / 400 + day_of_year - 719468;
}

/// "2023-11-16 18:15:46.6805900", with up to nine decimals or none, and "+00:00" after it or not.
std::optional<Nanos> parse_date(std::string_view text) {
  const auto year = take_digits(text, 4);
  if (!year || !take(text, "-")) return std::nullopt;
  const auto month = take_digits(text, 2);
  if (!month || !take(text, "-")) return std::nullopt;
  const auto day = take_digits(text, 2);
  if (!day || !take(text, " ")) return std::nullopt;
  const auto hour = take_digits(text, 2);
  if (!hour || !take(text, ":")) return std::nullopt;
  const auto minute = take_digits(text, 2);
  if (!minute || !take(text, ":")) return std::nullopt;
  const auto second = take_digits(text, 2);
  if (!second) return std::nullopt;
  Nanos fraction = 0;
  if (take(text, ".")) {
    Nanos unit = kNanosPerSecond;
    while (!text.empty() && text[0] >= '0' && text[0] <= '9' && unit > 1) {
      unit /= 10;
      fraction += (text[0] - '0') * unit;
      text.remove_prefix(1);
    }
    if (unit == kNanosPerSecond) return std::nullopt;
  }
  take(text, "+00:00");
  const bool sound = text.empty() && *year >= 1970 && *year <= 2200 && *month >= 1 && *month <= 12 &&
                     *day >= 1 && *day <= 31 && *hour < 24 && *minute < 60 && *second <= 60;
  if (!sound) return std::nullopt;
  const int64_t seconds =
      days_since_epoch(*year, *month, *day) * 86400 + *hour * 3600 + *minute * 60 + *second;
  return seconds * kNanosPerSecond + fraction;
}

/// What a column says, under any of its names.
enum Column : uint8_t { kTime, kPrompt, kOutput, kDeadline, kPriority, kTenant, kNumColumns };
constexpr std::array<std::array<std::string_view, 2>, kNumColumns> kNames{{
    {"TIMESTAMP", "Timestamp"},
    {"ContextTokens", "Request tokens"},
    {"GeneratedTokens", "Response tokens"},
    {"ttft_deadline_ms", ""},
    {"priority", ""},
    {"tenant", ""},
}};
constexpr size_t kNumRequired = 3;

/// Where the columns are.
class Header {
 public:
  /// Throws Error if a column is missing or there twice.
  explicit Header(std::string_view line) {
    names_ = split(line, ',');
    at_.fill(kNoColumn);
    for (size_t i = 0; i < names_.size(); ++i) {
      for (size_t column = 0; column < kNumColumns; ++column) {
        if (names_[i].empty() || std::ranges::find(kNames[column], names_[i]) == kNames[column].end())
          continue;
        if (at_[column] != kNoColumn) throw Error(fmt::format("the column {} is there twice", names_[i]));
        at_[column] = i;
      }
    }
    if (std::find(at_.begin(), at_.begin() + kNumRequired, kNoColumn) == at_.begin() + kNumRequired) return;
    throw Error(fmt::format(
        "neither the header of a trace (the columns {}, or BurstGPT's Timestamp, Request tokens and Response "
        "tokens), nor JSON, nor a decision log",
        kAzureHeader));
  }
  bool has(Column column) const { return at_[column] != kNoColumn; }
  std::string_view name(Column column) const { return names_[at_[column]]; }
  size_t size() const { return names_.size(); }
  std::string_view value(Column column, const std::vector<std::string_view>& fields) const {
    return fields[at_[column]];
  }
  bool is_burst_gpt() const { return name(kOutput) == kNames[kOutput][1]; }

 private:
  std::vector<std::string_view> names_;
  std::array<size_t, kNumColumns> at_{};
};

class CsvReader {
 public:
  explicit CsvReader(std::string_view header) : header_(header) {}
  const Header& header() const { return header_; }

  /// nullopt: a request that failed. Throws Error naming the column.
  std::optional<SimRequest> read(std::string_view line) {
    const auto fields = split(line, ',');
    if (fields.size() != header_.size()) {
      throw Error(fmt::format("{} values, not the {} of the header", fields.size(), header_.size()));
    }
    const auto value = [&](Column column) { return header_.value(column, fields); };
    const auto fault = [&](Column column, const std::string& range) {
      return Error(fmt::format("{} is '{}'{}", header_.name(column), value(column), range));
    };
    SimRequest request;
    const std::string_view text = value(kTime);
    const auto time = text.find('-', 1) == std::string_view::npos
                          ? parse_decimal(text, kMostSecondsOfTrace, kNanosPerSecond)
                          : parse_date(text);
    if (!time) throw fault(kTime, ", neither a time such as 2023-11-16 18:15:46.68 nor seconds");
    request.arrival = *time;
    const auto length = [&](Column column, uint32_t least) {
      const auto number = parse_whole(value(column), kMaxLength);
      if (!number || *number < least) throw fault(column, fmt::format(", not {} to {}", least, kMaxLength));
      return static_cast<uint32_t>(*number);
    };
    request.prompt_length = length(kPrompt, 1);
    request.output_length = length(kOutput, header_.is_burst_gpt() ? 0 : 1);
    const auto given = [&](Column column) { return header_.has(column) && !value(column).empty(); };
    if (given(kDeadline)) {
      const auto deadline = parse_decimal(value(kDeadline), kMaxLength, kNanosPerMillisecond);
      if (!deadline) throw fault(kDeadline, fmt::format(", not 0 to {} milliseconds", kMaxLength));
      request.ttft_deadline = *deadline;
      request.names_deadline = true;
    }
    if (given(kPriority)) {
      std::string_view digits = value(kPriority);
      const bool is_negative = take(digits, "-");
      const auto level = parse_whole(digits, control::kMostPriority);
      if (!level) throw fault(kPriority, fmt::format(", not within +-{}", control::kMostPriority));
      request.priority = static_cast<int32_t>(*level) * (is_negative ? -1 : 1);
    }
    if (header_.has(kTenant)) request.tenant = tenants_.of(value(kTenant));
    if (request.output_length == 0) return std::nullopt;
    return request;
  }

 private:
  Header header_;
  TenantNumbers tenants_;
};

}  // namespace

TraceRequests read_csv_trace(std::string_view text, const std::string& where, const TraceOptions& options) {
  TextLines lines(text);
  const auto named = [&](const Error& error) {
    return Error(fmt::format("{}: line {}: {}", where, std::max<uint64_t>(1, lines.number()), error.what()));
  };
  TraceRequests trace;
  std::optional<CsvReader> reader;
  uint64_t failed = 0;
  try {
    std::string_view line;
    lines.next(line);
    reader.emplace(line);
    while (trace.requests.size() < options.max_requests && lines.next(line)) {
      std::optional<SimRequest> request = reader->read(line);
      if (!request) {
        ++failed;
        continue;
      }
      request->line = static_cast<uint32_t>(lines.number());
      trace.requests.push_back(std::move(*request));
    }
    if (trace.requests.empty()) throw Error("the trace ends without a request");
  } catch (const Error& error) {
    throw named(error);
  }
  trace.has_deadlines = reader->header().has(kDeadline);
  trace.has_priorities = reader->header().has(kPriority);
  trace.has_tenants = reader->header().has(kTenant);
  if (failed > 0) {
    trace.notes.push_back(
        fmt::format("{}: left out {} requests that failed (Response tokens 0)", where, failed));
  }
  return trace;
}

}  // namespace quire::sim
