#include "sim/step_log_file.h"

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

constexpr uint64_t kMostBytes = uint64_t{4} << 30;
constexpr int64_t kMostOfAStep =
    1'000'000'000'000'000;  // nanoseconds, or tokens: sums of them fit in 64 bits

/// The columns must be those that this version writes.
void read_head(std::string_view line, const std::filesystem::path& path, StepLogFile& out) {
  json::value value;
  try {
    value = parse_json(line, path);
  } catch (const Error&) {
    throw file_error(path, "is no step log: its first line is no JSON object");
  }
  const JsonObject head(value, path);
  if (!head.has("step_log")) throw file_error(path, "is no step log: --step-log writes one");
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
}

backend::StepRecord record_of(std::string_view line, const std::string& place) {
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
  return record;
}

}  // namespace

StepLogFile read_step_log(const std::filesystem::path& path) {
  const std::string text = read_file(path, kMostBytes);
  StepLogFile out;
  size_t begin = 0;
  for (uint64_t number = 1; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos && number > 1) break;  // cut off
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (number == 1) {
      read_head(line, path, out);
    } else {
      out.records.push_back(record_of(line, fmt::format("{}: line {}", path.string(), number)));
    }
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  if (out.records.empty()) throw file_error(path, "holds no step");
  return out;
}

}  // namespace quire::sim
