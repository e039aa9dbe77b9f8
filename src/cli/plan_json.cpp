#include "cli/plan_json.h"

#include <utility>

#include "sim/report_json.h"
#include "startup/model_files.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

/// null if unknown.
json::value known(double rate) { return rate == 0 ? json::value() : json::value(rate); }

json::object to_json(const startup::Allocation& of) {
  return {{"sequence_bytes", of.bytes}, {"unused_bytes", of.unused}, {"sequences", of.users}};
}

json::object to_json(const startup::Users& users) {
  return {{"users", users.all},
          {"limit", startup::kLimitNames[static_cast<size_t>(users.limit)]},
          {"by_memory", users.by_memory},
          {"by_bandwidth", users.by_bandwidth},
          {"by_arithmetic", users.by_arithmetic}};
}

json::object weights_json(const startup::Capacity& capacity) {
  json::object formats;
  for (const auto& [format, bytes] : capacity.weights.packed) formats[format] = bytes;
  return {{"parameters", capacity.shape.num_parameters},
          {"bytes_by_format", std::move(formats)},
          {"embedding_bytes", capacity.weights.embedding_bytes},
          {"bytes_in_memory", capacity.weight_bytes}};
}

json::object kv_json(const startup::Capacity& capacity, std::string_view type, uint32_t block_size) {
  json::array windows;
  for (const startup::WindowLayers& each : capacity.kv) {
    windows.push_back(
        {{"window", each.window}, {"layers", each.layers}, {"bytes_per_token", each.bytes_per_token}});
  }
  return {{"dtype", type},
          {"bytes_per_token", capacity.shape.kv_bytes_per_token()},
          {"by_window", std::move(windows)},
          {"groups", capacity.shape.kv_windows.size()},
          {"bytes", capacity.kv_bytes},
          {"block_size", block_size},
          {"block_bytes", capacity.block_bytes},
          {"blocks", capacity.blocks},
          {"tokens", capacity.tokens},
          {"longest_sequence", capacity.longest_sequence}};
}

json::array fitted_json(const Foresight& foresight, const startup::Capacity& capacity,
                        const startup::Demand& demand) {
  json::array steps;
  for (const startup::Ceiling& each : capacity.ceilings) {
    const backend::StepWork work = startup::decode_work(each.batch, demand.context);
    const double seconds = static_cast<double>(foresight.cost.duration(work)) / 1e9;
    steps.push_back({{"batch", each.batch},
                     {"step_seconds", seconds},
                     {"tokens_per_s", each.batch / seconds},
                     {"extrapolated", foresight.cost.fitted()->extrapolates(work)}});
  }
  return steps;
}

json::object load_json(const Foresight& foresight) {
  const CarriedLoad& carried = foresight.carried;
  const sim::SimulationReport& report = carried.report;
  return {{"slo", sim::slo_json(foresight.load->slo)},
          {"prompt_tokens", foresight.load->prompt},
          {"output_tokens", foresight.load->output},
          {"users", static_cast<uint64_t>(carried.users.load)},
          {"or_more", carried.users.is_most},
          {"requests_per_s", report.per_second(report.totals.finished)},
          {"output_tokens_per_s", report.per_second(report.output_tokens)},
          {"requests", report.requests},
          {"good", report.good},
          {"ttft_ns", sim::times_json(report.ttft)},
          {"tpot_ns", sim::times_json(report.tpot)},
          {"e2e_ns", sim::times_json(report.e2e)},
          {"steps", report.totals.steps},
          {"extrapolated_steps", report.extrapolated}};
}

}  // namespace

json::object plan_json(const startup::CapacityPlan& plan, const startup::ModelOutline& model,
                       const startup::ChosenMachine& machine, const startup::Demand& demand,
                       std::string_view kv_type, const Foresight& foresight) {
  const startup::Capacity& capacity = plan.capacity;
  json::object root;
  root["model"] = startup::model_name(model.path);
  root["machine"] = {{"name", machine.name},
                     {"title", machine.title},
                     {"source", machine.source},
                     {"bandwidth_bytes_per_s", known(machine.speed.bandwidth)},
                     {"flops", known(capacity.arithmetic)}};
  root["memory_bytes"] = machine.memory;
  root["context"] = demand.context;
  root["max_model_len"] = demand.max_model_len;
  root["user_rate"] = demand.user_rate;
  root["weights"] = weights_json(capacity);
  root["kv"] = kv_json(capacity, kv_type, demand.block_size);
  root["paged"] = to_json(capacity.paged);
  root["contiguous"] = to_json(capacity.contiguous);
  root["token_flop"] = capacity.token_flops;
  root["prompt_seconds"] = known(capacity.prompt_seconds);
  json::array ceilings;
  for (const startup::Ceiling& each : capacity.ceilings) {
    ceilings.push_back({{"batch", each.batch},
                        {"fits", each.fits},
                        {"step_bytes", each.bytes},
                        {"tokens_per_s_by_bandwidth", known(each.by_bandwidth)},
                        {"tokens_per_s_by_arithmetic", known(each.by_arithmetic)}});
  }
  root["ceilings"] = std::move(ceilings);
  root["capacity"] = to_json(capacity.users);
  json::array changes;
  for (const startup::Change& change : plan.changes) {
    json::object row = to_json(change.users);
    row["flag"] = change.flag;
    row["alone_tokens_per_s"] = known(change.alone);
    changes.push_back(std::move(row));
  }
  root["changes"] = std::move(changes);
  root["advice"] = plan.advice;
  if (foresight.cost.fitted() != nullptr || foresight.load) root["cost"] = sim::to_json(foresight.cost);
  if (foresight.cost.fitted() != nullptr) {
    root["warning"] = foresight.warning.empty() ? json::value() : json::value(foresight.warning);
    root["fitted"] = fitted_json(foresight, capacity, demand);
  }
  if (foresight.load) root["within"] = load_json(foresight);
  return root;
}

}  // namespace quire::cli
