#include "startup/capacity_plan.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "base/amounts.h"
#include "base/error.h"
#include "kernels/attention.h"
#include "record/display_text.h"

namespace quire::startup {
namespace {

constexpr std::array kQuantizations = {"int8", "int4"};

/// All that a capacity depends on, for changing one thing.
struct PlanInputs {
  const ModelOutline& model;
  NumberFormats formats;
  const backend::MachineSpeed& speed;
  Demand demand;

  Capacity capacity() const { return capacity_of(model, formats, speed, demand); }
};

void check_demand(const ModelOutline& model, const Demand& demand) {
  const uint32_t most = model.shape.max_positions;
  if (demand.max_model_len > most) {
    throw Error(fmt::format("--max-model-len: {} is more than the {} positions of the model",
                            demand.max_model_len, most));
  }
  if (demand.block_size % 16 != 0) {
    throw Error(fmt::format("--block-size: {} is not a multiple of 16", demand.block_size));
  }
  if (demand.context > demand.max_model_len) {
    throw Error(fmt::format("--context: {} is more than the longest sequence, {} tokens", demand.context,
                            demand.max_model_len));
  }
}

/// Throws Error that says what the weights need, and which formats would make them fit.
void refuse_too_little(const PlanInputs& inputs, const Capacity& capacity) {
  const Demand& demand = inputs.demand;
  if (demand.memory >= capacity.weight_bytes) return;
  std::string smaller;
  for (const char* name : kQuantizations) {
    PlanInputs changed = inputs;
    changed.formats.quantization = name;
    const uint64_t needed = changed.capacity().weight_bytes;
    if (needed < demand.memory) smaller += fmt::format("; as {} they take {}", name, human_bytes(needed));
  }
  throw Error(fmt::format(
      "--memory: {} cannot hold the weights, {}: with one sequence of {} tokens at least {} is needed{}",
      human_bytes(demand.memory), human_bytes(capacity.weight_bytes), with_commas(demand.context),
      human_bytes(capacity.weight_bytes + capacity.paged.bytes), smaller));
}

/// "48GiB", "1536MiB": exact, as --memory reads it, if the number is a whole one of the unit.
std::string flag_bytes(uint64_t bytes) {
  constexpr std::array<std::pair<uint32_t, const char*>, 3> kUnits = {
      {{30, "GiB"}, {20, "MiB"}, {10, "KiB"}}};
  for (const auto& [shift, unit] : kUnits) {
    if (bytes >> shift << shift == bytes) return fmt::format("{}{}", bytes >> shift, unit);
  }
  return std::to_string(bytes);
}

/// What is free of a machine's memory is no round number.
uint64_t rounded_down(uint64_t bytes) {
  const uint32_t shift = bytes >> 34 > 0 ? 30 : bytes >> 30 > 0 ? 20 : 0;
  return bytes >> shift << shift;
}

std::vector<Change> changes_of(const PlanInputs& inputs, const Capacity& now) {
  std::vector<Change> out;
  const auto add = [&](const std::string& flag, bool is_setting, const auto& change) {
    PlanInputs changed = inputs;
    change(changed);
    const Capacity then = changed.capacity();
    out.push_back({flag, is_setting, then.users, then.ceilings[0].tokens_per_second()});
  };
  for (const char* name : kQuantizations) {
    if (weight_sizes(inputs.model, name).packed_bytes() >= now.weights.packed_bytes()) continue;
    add(fmt::format("--quantization {}", name), true,
        [&](PlanInputs& of) { of.formats.quantization = name; });
  }
  if (now.shape.kv_element_bytes > 1 && kernels::KvLayout::fits(DType::kI8, inputs.model.config.head_dim)) {
    add("--kv-cache-dtype int8", true, [](PlanInputs& of) { of.formats.kv_cache_dtype = "int8"; });
  }
  if (inputs.demand.context > 1) {
    const uint32_t half = inputs.demand.context / 2;
    add(fmt::format("--context {}", half), false, [&](PlanInputs& of) { of.demand.context = half; });
  }
  const uint64_t twice = rounded_down(2 * inputs.demand.memory);
  add(fmt::format("--memory {}", flag_bytes(twice)), false,
      [&](PlanInputs& of) { of.demand.memory = twice; });
  std::stable_sort(out.begin(), out.end(), [](const Change& a, const Change& b) {
    return std::pair(a.users.all, a.alone) > std::pair(b.users.all, b.alone);
  });
  return out;
}

/// "1 user", "1,048,576 users or more".
std::string users_in_words(uint64_t users) {
  return fmt::format("{}{}", record::plural(users, "user"), users >= kManyUsers ? " or more" : "");
}

std::string gain(const Change& change, uint64_t now) {
  const std::string then = users_in_words(change.users.all);
  if (now == 0) return fmt::format("{} would carry {}", change.flag, then);
  return fmt::format("{} would carry {}, {:.1f} times as many", change.flag, then,
                     static_cast<double>(change.users.all) / static_cast<double>(now));
}

/// What stops the next user.
std::string limit_sentence(const Capacity& capacity, const Demand& demand) {
  const Users& users = capacity.users;
  const Ceiling& alone = capacity.ceilings[0];
  const std::string_view name = kLimitNames[static_cast<size_t>(users.limit)];
  if (users.all == 0 && users.limit == Limit::kMemory) {
    return fmt::format("memory is the limit: no sequence of {} tokens fits beside the weights",
                       with_commas(demand.context));
  }
  if (users.all == 0) {
    const double most = users.limit == Limit::kBandwidth ? alone.by_bandwidth : alone.by_arithmetic;
    return fmt::format(
        "{} is the limit: one user alone gets at most {:.1f} tokens/s, less than --user-rate {:g}", name,
        most, demand.user_rate);
  }
  return fmt::format("{} is the limit, at {}", name, users_in_words(users.all));
}

std::string advice_of(const Capacity& capacity, const Demand& demand, const std::vector<Change>& changes) {
  const uint64_t now = capacity.users.all;
  std::string out = limit_sentence(capacity, demand);
  const auto gains = [&](const Change& change) { return change.users.all > now; };
  const auto best = std::find_if(changes.begin(), changes.end(), gains);
  if (best == changes.end()) {
    if (now > 0 || capacity.users.limit == Limit::kMemory) return out + "; no change below carries more";
    const Change& fastest = changes.front();
    return fmt::format("{}; no change below is enough, and most of all helps {}: {:.1f} tokens/s", out,
                       fastest.flag, fastest.alone);
  }
  out += "; " + gain(*best, now);
  if (best->is_setting) return out;
  const auto setting = std::find_if(best, changes.end(),
                                    [&](const Change& change) { return change.is_setting && gains(change); });
  return setting == changes.end() ? out
                                  : fmt::format("{}; of the server's flags, {}", out, gain(*setting, now));
}

}  // namespace

CapacityPlan make_capacity_plan(const ModelOutline& model, const NumberFormats& formats,
                                const backend::MachineSpeed& speed, const Demand& demand) {
  check_demand(model, demand);
  const PlanInputs inputs{model, formats, speed, demand};
  CapacityPlan out;
  out.capacity = inputs.capacity();
  refuse_too_little(inputs, out.capacity);
  out.changes = changes_of(inputs, out.capacity);
  out.advice = advice_of(out.capacity, demand, out.changes);
  return out;
}

}  // namespace quire::startup
