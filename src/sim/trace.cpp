#include "sim/trace.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "record/log_files.h"
#include "sim/fixed_point.h"
#include "sim/trace_formats.h"
#include "sim/trace_lines.h"

namespace quire::sim {
namespace {

constexpr Nanos kMaxTime = Nanos{4} * 366 * 24 * 3600 * kNanosPerSecond;  // from the first to the last
constexpr Nanos kMaxArrival = 16 * kMaxTime;
constexpr uint64_t kMostTraceBytes = uint64_t{2} << 30;

bool is_decision_log(const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;  // reading a pipe would take from it
  const std::string_view begins = record::decision_log_kind().begins;
  std::string begin(begins.size(), '\0');
  std::ifstream(path, std::ios::binary).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin == begins;
}

TraceRequests read_requests(const std::filesystem::path& path, const TraceOptions& options) {
  if (is_decision_log(path)) return read_recorded_run(path, options);
  const std::string file = read_file(path, kMostTraceBytes);
  const std::string_view text = without_mark(file);
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const char first = begin == std::string_view::npos ? '\0' : text[begin];
  if (first == '[') return read_conversations(text, path.string(), options);
  if (first == '{') return read_mooncake_trace(text, path.string(), options);
  return read_csv_trace(text, path.string(), options);
}

std::string place(const std::filesystem::path& path, const SimRequest& request) {
  return fmt::format("{}: line {}", path.string(), request.line);
}

/// Sorts by time, which counts from the earliest then. Lines of the same time stay in their order.
void settle_times(TraceRequests& trace, const std::filesystem::path& path, uint32_t speed_thousandths) {
  std::vector<SimRequest>& requests = trace.requests;
  uint64_t late = 0;
  Nanos latest = requests.front().arrival;
  const SimRequest* first_late = nullptr;
  for (const SimRequest& request : requests) {
    const Nanos away = request.arrival - requests.front().arrival;
    if (away > kMaxTime || away < -kMaxTime) {
      throw Error(fmt::format("{}: its time is years {} that of the first request", place(path, request),
                              away > 0 ? "after" : "before"));
    }
    if (request.arrival < latest && late++ == 0) first_late = &request;
    latest = std::max(latest, request.arrival);
  }
  if (late > 0) {
    trace.notes.push_back(
        fmt::format("{}: sorted by time: {} of {} requests came after a later one, the "
                    "first in line {}",
                    path.string(), late, requests.size(), first_late->line));
    std::ranges::stable_sort(requests, {}, &SimRequest::arrival);
  }
  const Nanos start = requests.front().arrival;
  for (SimRequest& request : requests) {
    const int128 arrival = int128{request.arrival - start} * 1000 / speed_thousandths;
    if (arrival > kMaxArrival) {
      throw Error(fmt::format("{}: at this speed it arrives decades later", place(path, request)));
    }
    request.arrival = static_cast<Nanos>(arrival);
  }
}

}  // namespace

Workload read_trace(const std::filesystem::path& path, const TraceOptions& options) {
  if (options.speed_thousandths == 0) throw Error("trace: a speed of 0");
  TraceRequests trace = read_requests(path, options);
  if (trace.has_times) settle_times(trace, path, options.speed_thousandths);
  Workload workload;
  workload.seed = options.seed;
  workload.vocab_size = options.vocab_size;
  workload.piece_length = trace.piece_length;
  workload.has_times = trace.has_times;
  workload.has_deadlines = trace.has_deadlines;
  workload.has_priorities = trace.has_priorities;
  workload.has_tenants = trace.has_tenants;
  workload.notes = std::move(trace.notes);
  workload.requests = std::move(trace.requests);
  return workload;
}

}  // namespace quire::sim
