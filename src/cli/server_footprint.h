#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace quire::cli {

/// The value of a metric in Prometheus' text format: the greatest, where it has several by its labels;
/// nullopt if it has none.
std::optional<double> metric_value(std::string_view text, std::string_view name);

/// What a server took while it was loaded, as far as its metrics say.
struct ServerFootprint {
  /// Share of the K/V pool that requests were seen to hold, 0 to 1; none where they were never seen to hold
  /// any, as when a load is over between two looks.
  std::optional<double> kv_usage_peak;
  std::optional<uint64_t> resident;       // bytes of memory at the end
  std::optional<uint64_t> resident_peak;  // the most that was seen

  /// Takes in the text of /metrics, quire's or another server's.
  void take(std::string_view metrics);
};

}  // namespace quire::cli
