#include "sim/report_json.h"

#include <span>
#include <utility>

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include "record/config_json.h"

namespace quire::sim {
namespace {

namespace json = boost::json;

json::value nanos_or_null(const std::optional<Nanos>& time) {
  return time ? json::value(*time) : json::value();
}

json::array to_json(std::span<const GroupOutcome> groups, const char* name, bool has_slo) {
  json::array out;
  for (const GroupOutcome& each : groups) {
    out.push_back({{name, each.of},
                   {"requests", each.requests},
                   {"finished", each.finished},
                   {"refused", each.refused},
                   {"in_time", each.in_time},
                   {"good", has_slo ? json::value(each.good) : json::value()},
                   {"output_tokens", each.output_tokens},
                   {"ttft_ns", times_json(each.ttft)},
                   {"tpot_ns", times_json(each.tpot)},
                   {"e2e_ns", times_json(each.e2e)}});
  }
  return out;
}

}  // namespace

json::value times_json(const Percentiles& of) {
  if (!of.any) return nullptr;
  return {{"mean", of.mean}, {"p50", of.p50}, {"p90", of.p90}, {"p99", of.p99}, {"max", of.max}};
}

namespace {

json::object roofline_json(const backend::sim::RooflineCost& cost) {
  json::array attention;
  for (const backend::sim::AttentionCost& each : cost.attention) {
    attention.push_back({{"window", each.window},
                         {"layers", each.layers},
                         {"token_bytes", each.token_bytes},
                         {"pair_ops", each.pair_ops}});
  }
  return {{"kind", "roofline"},
          {"model", cost.model},
          {"machine", cost.machine},
          {"bandwidth_bytes_per_s", cost.bandwidth},
          {"ops_per_s", cost.rate},
          {"host_link_bytes_per_s", cost.host_link},
          {"overhead_ns", cost.overhead_s * 1e9},
          {"weight_bytes", cost.weight_bytes},
          {"expert_bytes", cost.expert_bytes},
          {"experts_chosen", cost.chosen},
          {"token_ops", cost.token_ops},
          {"row_ops", cost.row_ops},
          {"block_bytes", cost.block_bytes},
          {"attention", std::move(attention)}};
}

}  // namespace

json::object to_json(const backend::sim::CostModel& of) {
  if (const backend::sim::FittedCost* const fitted = of.fitted()) {
    json::object out{{"kind", "fitted"}, {"model", fitted->model}, {"machine", fitted->machine}};
    if (!fitted->warning.empty()) out["warning"] = fitted->warning;
    return out;
  }
  if (of.roofline() != nullptr) return roofline_json(*of.roofline());
  const backend::sim::LinearCost& cost = *of.linear();
  return {{"kind", "linear"},
          {"step_ns", cost.step},
          {"prefill_tokens_per_ms", cost.prefill_tokens_per_ms},
          {"decode_ns", cost.decode},
          {"decode_more_ns", cost.decode_more},
          {"swap_block_ns", cost.swap_block}};
}

json::object to_json(const SimulationReport& report, const SimulationConfig& config, const Slo& slo) {
  const SimulationTotals& totals = report.totals;
  json::object root;
  root["scheduler"] = record::to_json(config.scheduler);
  root["cost"] = to_json(config.cost);
  root["extrapolated_steps"] = report.extrapolated;
  root["digest"] = fmt::format("{:016x}", report.digest);
  root["elapsed_ns"] = report.elapsed;
  root["requests"] = report.requests;
  root["interrupted"] = report.unfinished() > 0;
  root["unfinished"] = report.unfinished();
  root["finished"] = totals.finished;
  root["refused"] = totals.refused;
  json::object refused_by;
  for (size_t i = 0; i < kNumRefusals; ++i) {
    refused_by[refusal_key(static_cast<Refusal>(i))] = totals.refused_by[i];
  }
  root["refused_by"] = std::move(refused_by);
  root["prompt_tokens"] = report.prompt_tokens;
  root["output_tokens"] = report.output_tokens;
  root["output_tokens_per_second"] = report.per_second(report.output_tokens);
  root["requests_per_second"] = report.per_second(totals.finished);
  root["slo"] = slo_json(slo);
  root["good"] = slo.any() ? json::value(report.good) : json::value();
  root["good_requests_per_second"] = slo.any() ? json::value(report.per_second(report.good)) : json::value();
  root["queue_ns"] = times_json(report.queue);
  root["ttft_ns"] = times_json(report.ttft);
  root["tpot_ns"] = times_json(report.tpot);
  root["e2e_ns"] = times_json(report.e2e);
  root["steps"] = totals.steps;
  root["busy_ns"] = totals.busy;
  root["prefill_tokens"] = totals.prefill_tokens;
  root["decode_tokens"] = totals.decode_tokens;
  root["prefix_queried_tokens"] = report.last.total_prefix_queried_tokens;
  root["prefix_hit_tokens"] = report.last.total_prefix_hit_tokens;
  root["preemptions"] = report.last.total_preemptions;
  root["evictions"] = report.last.total_evictions;
  root["moved_blocks"] = totals.moved_blocks;
  root["in_time"] = report.in_time;
  root["decision_digest"] = fmt::format("{:016x}", report.decision_digest);
  root["copies"] = report.last.total_copies;
  root["peak_running"] = totals.peak_running;
  root["peak_waiting"] = totals.peak_waiting;
  root["peak_blocks"] = totals.peak_blocks;
  root["block_microseconds"] = totals.block_micros;
  root["running_microseconds"] = totals.running_micros;
  return root;
}

json::value slo_json(const Slo& slo) {
  if (!slo.any()) return nullptr;
  return {{"ttft_ns", nanos_or_null(slo.ttft)},
          {"tpot_ns", nanos_or_null(slo.tpot)},
          {"e2e_ns", nanos_or_null(slo.e2e)},
          {"attainment", slo.attainment}};
}

void add_requests(json::object& root, const ReportBuilder& report, const KeptRequests& requests) {
  const WorkloadSettings& settings = report.simulation().settings();
  root["seed"] = settings.seed;
  root["choices"] = settings.choices;
  root["tenants"] = to_json(report.by_tenant(), "tenant", report.slo().any());
  root["priorities"] = to_json(report.by_priority(), "priority", report.slo().any());
  root["record_fields"] = {"arrival_ns",    "admitted_ns",   "first_token_ns", "finished_ns", "prompt_tokens",
                           "output_tokens", "cached_tokens", "preemptions",    "refused",     "line",
                           "tenant",        "priority",      "request"};
  json::array records;
  uint64_t number = 0;
  for (const KeptRequest& of : requests.records()) {
    ++number;
    if (!of.has_history()) continue;
    records.push_back({of.arrival, of.admitted, of.first_token, of.finished, of.prompt_tokens,
                       of.output_tokens, of.cached_tokens, of.preemptions,
                       of.refused ? json::value(refusal_key(*of.refused)) : json::value(), of.line, of.tenant,
                       of.priority, number});
  }
  root["records"] = std::move(records);
}

}  // namespace quire::sim
