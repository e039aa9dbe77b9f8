#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace quire::bench {

/// The value of a metric in Prometheus' text format: the maximum over its labels; nullopt if it has none.
std::optional<double> metric_value(std::string_view text, std::string_view name);

/// The memory of a server under load, from its metrics.
struct ServerFootprint {
  /// The highest observed share of the K/V pool that requests held, 0 to 1; empty if no use was observed, as
  /// when a load ends between two readings.
  std::optional<double> kv_usage_peak;
  std::optional<uint64_t> resident;       // bytes of resident memory at the end
  std::optional<uint64_t> resident_peak;  // the highest value observed

  /// Reads the text of /metrics, of quire or another server.
  void take(std::string_view metrics);
};

}  // namespace quire::bench
