#include "bench/server_footprint.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

namespace quire::bench {
namespace {

/// Of quire and vLLM, of older vLLM, SGLang and llama.cpp.
constexpr std::string_view kKvUsage[] = {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc",
                                         "sglang:token_usage", "llamacpp:kv_cache_usage_ratio"};

void raise(std::optional<double>& most, double value) { most = std::max(most.value_or(value), value); }

}  // namespace

std::optional<double> metric_value(std::string_view text, std::string_view name) {
  std::optional<double> most;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    if (line.starts_with('{')) {
      // Labels may contain any character; a timestamp may follow the value.
      const size_t close = line.rfind('}');
      if (close == std::string_view::npos) continue;
      line.remove_prefix(close + 1);
    }
    if (!line.starts_with(' ')) continue;
    const std::string number(line.substr(1));
    char* stop = nullptr;
    const double value = std::strtod(number.c_str(), &stop);
    if (stop != number.c_str() && std::isfinite(value)) raise(most, value);
  }
  return most;
}

void ServerFootprint::take(std::string_view metrics) {
  for (const std::string_view name : kKvUsage) {
    if (const auto usage = metric_value(metrics, name)) {
      if (*usage > 0) raise(kv_usage_peak, *usage);
      break;
    }
  }
  const auto bytes = [&](std::string_view name) -> std::optional<uint64_t> {
    const auto value = metric_value(metrics, name);
    constexpr double kMost = 0x1p60;
    if (!value || *value < 0 || *value > kMost) return std::nullopt;
    return static_cast<uint64_t>(*value);
  };
  const auto current = bytes("process_resident_memory_bytes");
  const auto peak = bytes("quire:process_resident_memory_peak_bytes");
  if (current) resident = current;
  for (const auto& each : {current, peak}) {
    if (each) resident_peak = std::max(resident_peak.value_or(0), *each);
  }
}

}  // namespace quire::bench
