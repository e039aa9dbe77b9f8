#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/trace.h"

// The formats of traces, for trace.cpp.
namespace quire::sim {

inline constexpr uint64_t kMostSecondsOfTrace = 7'258'118'400;  // the year 2200, which 64 bits hold in ns

/// What a reader found. `requests` are in the order of the file, with the trace's own times as arrivals.
struct TraceRequests {
  std::vector<SimRequest> requests;
  uint32_t piece_length = 0;
  bool has_times = true;
  bool has_deadlines = false;
  bool has_priorities = false;
  bool has_tenants = false;
  std::vector<std::string> notes;
};

/// Numbers for the names of tenants, in the order in which they first occur. Requests without one are of a
/// tenant of their own, named "".
class TenantNumbers {
 public:
  uint32_t of(std::string_view name) {
    return numbers_.try_emplace(std::string(name), static_cast<uint32_t>(numbers_.size())).first->second;
  }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
};

/// Each throws Error as read_trace does. `where`: the path, for errors.
TraceRequests read_csv_trace(std::string_view text, const std::string& where, const TraceOptions& options);
TraceRequests read_mooncake_trace(std::string_view text, const std::string& where,
                                  const TraceOptions& options);
TraceRequests read_conversations(std::string_view text, const std::string& where,
                                 const TraceOptions& options);
TraceRequests read_recorded_run(const std::filesystem::path& path, const TraceOptions& options);

}  // namespace quire::sim
