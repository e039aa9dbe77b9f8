#include "record/config_json.h"

#include <algorithm>
#include <limits>
#include <span>

namespace quire::record {
namespace {

/// Calls `field(name, member)` for each of the configuration, so that reading and writing cannot differ.
template <typename Config, typename Field>
void for_each_field(Config& c, const Field& field) {
  field("num_blocks", c.num_blocks);
  field("block_size", c.block_size);
  field("kv_windows", c.kv_windows);
  field("max_num_seqs", c.max_num_seqs);
  field("max_num_batched_tokens", c.max_num_batched_tokens);
  field("context_cost", c.context_cost);
  field("max_model_len", c.max_model_len);
  field("max_waiting", c.max_waiting);
  field("watermark_bp", c.watermark_bp);
  field("enable_prefix_caching", c.enable_prefix_caching);
  field("admit_eagerly", c.admit_eagerly);
  field("admit_while_preempting", c.admit_while_preempting);
  field("scheduling", c.scheduling);
  field("batching", c.batching);
  field("victim", c.victim);
  field("preemption", c.preemption);
  field("eviction", c.eviction);
  field("num_host_blocks", c.num_host_blocks);
  field("priority_aging", c.priority_aging);
  field("prefill_token", c.costs.prefill_token);
  field("decode_token", c.costs.decode_token);
  field("swap_block", c.costs.swap_block);
}

std::span<const std::string_view> names_of(control::SchedulingKind /*kind*/) {
  return control::kSchedulingNames;
}
std::span<const std::string_view> names_of(control::BatchingKind /*kind*/) { return control::kBatchingNames; }
std::span<const std::string_view> names_of(control::VictimKind /*kind*/) { return control::kVictimNames; }
std::span<const std::string_view> names_of(control::EvictionKind /*kind*/) { return control::kEvictionNames; }
std::span<const std::string_view> names_of(control::PreemptionKind /*kind*/) {
  return control::kPreemptionNames;
}

struct Write {
  json::object& out;
  template <typename T>
  void operator()(std::string_view name, const T& value) const {
    if constexpr (std::is_enum_v<T>) {
      out[name] = names_of(value)[static_cast<size_t>(value)];
    } else if constexpr (std::is_arithmetic_v<T>) {
      out[name] = value;
    } else {
      out[name] = json::array(value.begin(), value.end());
    }
  }
};

struct Read {
  const JsonObject& from;
  template <typename T>
  void operator()(std::string_view name, T& value) const {
    if constexpr (std::is_enum_v<T>) {
      const auto names = names_of(value);
      const auto found = std::ranges::find(names, from.string(name));
      if (found == names.end()) throw from.error(name, "unknown policy");
      value = static_cast<T>(found - names.begin());
    } else if constexpr (std::is_same_v<T, bool>) {
      value = from.boolean_or(name, value);  // one that is newer than the log
    } else {
      const auto most = static_cast<int64_t>(
          std::min<uint64_t>(std::numeric_limits<T>::max(), std::numeric_limits<int64_t>::max()));
      value = static_cast<T>(from.integer(name, 0, most));
    }
  }
  void operator()(std::string_view name, std::vector<uint32_t>& value) const {
    const json::value* list = from.find(name);
    if (list == nullptr || !list->is_array()) throw from.error(name, "a list was expected");
    value.clear();
    for (const json::value& each : list->get_array()) {
      if (!each.is_int64() || each.get_int64() < 0 || each.get_int64() > UINT32_MAX) {
        throw from.error(name, "a list of numbers was expected");
      }
      value.push_back(static_cast<uint32_t>(each.get_int64()));
    }
  }
};

}  // namespace

json::object to_json(const control::SchedulerConfig& config) {
  json::object out;
  for_each_field(config, Write{out});
  return out;
}

control::SchedulerConfig scheduler_config_from(const JsonObject& object) {
  control::SchedulerConfig config;
  for_each_field(config, Read{object});
  return config;
}

}  // namespace quire::record
