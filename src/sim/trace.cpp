#include "sim/trace.h"

#include <charconv>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "sim/fixed_point.h"

namespace quire::sim {
namespace {

constexpr uint32_t kLongestOfATrace = 1 << 30;
constexpr std::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr uint32_t kMooncakePiece = 512;
constexpr Nanos kSecond = 1'000'000'000;
constexpr Nanos kMaxTime = Nanos{4} * 366 * 24 * 3600 * kSecond;  // after the first line
constexpr Nanos kMaxArrival = 16 * kMaxTime;

/// Takes a decimal number of exactly `digits` digits from the front of `text`.
std::optional<int64_t> take_digits(std::string_view& text, size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int64_t value = 0;
  for (const char c : text.substr(0, digits)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  text.remove_prefix(digits);
  return value;
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
std::optional<Nanos> parse_timestamp(std::string_view text) {
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
    Nanos unit = kSecond;
    while (!text.empty() && text[0] >= '0' && text[0] <= '9' && unit > 1) {
      unit /= 10;
      fraction += (text[0] - '0') * unit;
      text.remove_prefix(1);
    }
    if (unit == kSecond) return std::nullopt;
  }
  take(text, "+00:00");
  const bool sound = text.empty() && *year >= 1970 && *year <= 2200 && *month >= 1 && *month <= 12 &&
                     *day >= 1 && *day <= 31 && *hour < 24 && *minute < 60 && *second <= 60;
  if (!sound) return std::nullopt;
  const int64_t seconds =
      days_since_epoch(*year, *month, *day) * 86400 + *hour * 3600 + *minute * 60 + *second;
  return seconds * kSecond + fraction;
}

struct Line {
  Nanos time = 0;  // on the trace's own clock
  SimRequest request;
};

uint32_t parse_length(std::string_view text, const char* name) {
  uint32_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || value == 0 || value > kLongestOfATrace) {
    throw Error(fmt::format("{} is '{}', not 1 to {}", name, text, kLongestOfATrace));
  }
  return value;
}

Line parse_azure(std::string_view text) {
  const size_t first = text.find(',');
  const size_t second = first == std::string_view::npos ? first : text.find(',', first + 1);
  if (second == std::string_view::npos || text.find(',', second + 1) != std::string_view::npos) {
    throw Error(fmt::format("not the three values {}", kAzureHeader));
  }
  Line line;
  const auto time = parse_timestamp(text.substr(0, first));
  if (!time) throw Error(fmt::format("TIMESTAMP is '{}'", text.substr(0, first)));
  line.time = *time;
  line.request.prompt_length = parse_length(text.substr(first + 1, second - first - 1), "ContextTokens");
  line.request.output_length = parse_length(text.substr(second + 1), "GeneratedTokens");
  return line;
}

/// `where` is the file's name and line, which the JSON reader puts before what is wrong.
Line parse_mooncake(std::string_view text, const std::string& where) {
  const json::value value = parse_json(text, where, 4);
  const JsonObject object(value, where);
  Line line;
  line.time = object.integer("timestamp", 0, kMaxTime / 1'000'000) * 1'000'000;
  line.request.prompt_length = static_cast<uint32_t>(object.integer("input_length", 1, kLongestOfATrace));
  line.request.output_length = static_cast<uint32_t>(object.integer("output_length", 1, kLongestOfATrace));
  const json::value* ids = object.find("hash_ids");
  const json::array* list = ids == nullptr ? nullptr : ids->if_array();
  const uint64_t expected = (uint64_t{line.request.prompt_length} + kMooncakePiece - 1) / kMooncakePiece;
  if (list == nullptr || list->size() != expected) {
    throw Error(fmt::format("{}: key 'hash_ids': not a list of {} ids, one for {} tokens of the prompt each",
                            where, expected, kMooncakePiece));
  }
  line.request.pieces.reserve(list->size());
  for (const json::value& id : *list) {
    const int64_t* number = id.if_int64();
    if (number == nullptr || *number < 0 || *number > UINT32_MAX) {
      throw Error(fmt::format("{}: key 'hash_ids': an id is not an integer from 0 to {}", where, UINT32_MAX));
    }
    line.request.pieces.push_back(static_cast<uint32_t>(*number));
  }
  return line;
}

std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

Workload read_trace(const std::filesystem::path& path, const TraceOptions& options) {
  if (options.speed_thousandths == 0) throw Error("trace: a speed of 0");
  const std::string file = read_file(path);
  std::string_view text = file;
  const bool is_mooncake = text.starts_with('{');
  uint64_t number = 0;
  const auto where = [&] { return fmt::format("{}: line {}", path.string(), number); };
  if (!is_mooncake) {
    ++number;
    if (take_line(text) != kAzureHeader) {
      throw Error(fmt::format("{}: neither the header {} nor a JSON object", where(), kAzureHeader));
    }
  }
  Workload workload;
  workload.seed = options.seed;
  workload.vocab_size = options.vocab_size;
  workload.piece_length = kMooncakePiece;
  std::optional<Nanos> first;
  Nanos last = 0;
  while (!text.empty() && workload.requests.size() < options.max_requests) {
    ++number;
    const std::string_view line_text = take_line(text);
    if (line_text.empty()) continue;
    Line line;
    if (is_mooncake) {
      line = parse_mooncake(line_text, where());
    } else {
      try {
        line = parse_azure(line_text);
      } catch (const Error& error) {
        throw Error(fmt::format("{}: {}", where(), error.what()));
      }
    }
    if (!first) first = last = line.time;
    if (line.time < last || line.time - *first > kMaxTime) {
      throw Error(fmt::format("{}: its time is {} the line before it", where(),
                              line.time < last ? "before that of" : "years after"));
    }
    last = line.time;
    const int128 arrival = int128{line.time - *first} * 1000 / options.speed_thousandths;
    if (arrival > kMaxArrival)
      throw Error(fmt::format("{}: at this speed it arrives decades later", where()));
    line.request.arrival = static_cast<Nanos>(arrival);
    workload.requests.push_back(std::move(line.request));
  }
  if (workload.requests.empty()) throw Error(where() + ": the trace ends without a request");
  return workload;
}

}  // namespace quire::sim
