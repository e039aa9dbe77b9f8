#include "sim/report.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/amounts.h"
#include "sim/fixed_point.h"

namespace quire::sim {

Percentiles percentiles(std::vector<Nanos> times) {
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  const auto at = [&](size_t percent) { return times[(times.size() * percent + 99) / 100 - 1]; };
  int128 sum = 0;
  for (const Nanos time : times) sum += time;
  return {static_cast<Nanos>(sum / times.size()), at(50), at(90), at(99), times.back()};
}

namespace {

/// The times of finished requests, and how many of them there are.
struct Times {
  std::vector<Nanos> queue;
  std::vector<Nanos> ttft;
  std::vector<Nanos> tpot;
  std::vector<Nanos> e2e;

  /// Returns whether the request met the objectives.
  bool add(const RequestRecord& record, uint32_t choices, const Slo& slo) {
    queue.push_back(record.admitted - record.arrival);
    ttft.push_back(record.ttft());
    e2e.push_back(record.e2e());
    const std::optional<Nanos> each = record.tpot(choices);
    if (each) tpot.push_back(*each);
    return slo.met_by(ttft.back(), each, e2e.back());
  }
};

/// `group_of(request)` is a number of it.
template <class Group>
std::vector<GroupOutcome> outcomes(const Simulation& simulation, const Slo& slo, const Group& group_of) {
  std::map<int64_t, std::pair<GroupOutcome, Times>> groups;
  for (size_t i = 0; i < simulation.records().size(); ++i) {
    const RequestRecord& record = simulation.records()[i];
    auto& [outcome, times] = groups[group_of(simulation.workload().requests[i])];
    ++outcome.requests;
    outcome.refused += record.refused ? 1 : 0;
    if (record.finished < 0) continue;
    ++outcome.finished;
    outcome.in_time += record.in_time ? 1 : 0;
    outcome.output_tokens += record.output_tokens;
    outcome.good += times.add(record, simulation.workload().choices, slo) ? 1 : 0;
  }
  std::vector<GroupOutcome> out;
  for (auto& [number, group] : groups) {
    auto& [outcome, times] = group;
    outcome.of = number;
    outcome.ttft = percentiles(std::move(times.ttft));
    outcome.tpot = percentiles(std::move(times.tpot));
    outcome.e2e = percentiles(std::move(times.e2e));
    out.push_back(outcome);
  }
  return out;
}

}  // namespace

SimulationReport make_report(const Simulation& simulation, const Slo& slo) {
  SimulationReport report;
  Times times;
  for (const RequestRecord& record : simulation.records()) {
    if (record.finished < 0) continue;
    report.prompt_tokens += record.prompt_tokens;
    report.output_tokens += record.output_tokens;
    report.in_time += record.in_time ? 1 : 0;
    report.good += times.add(record, simulation.workload().choices, slo) ? 1 : 0;
  }
  report.requests = simulation.records().size();
  report.queue = percentiles(std::move(times.queue));
  report.ttft = percentiles(std::move(times.ttft));
  report.tpot = percentiles(std::move(times.tpot));
  report.e2e = percentiles(std::move(times.e2e));
  report.elapsed = simulation.now();
  report.totals = simulation.totals();
  report.last = simulation.stats();
  report.digest = simulation.digest();
  report.decision_digest = simulation.scheduler().digest();
  report.extrapolated = simulation.executor().extrapolated();
  return report;
}

std::vector<GroupOutcome> outcomes_by_tenant(const Simulation& simulation, const Slo& slo) {
  return outcomes(simulation, slo, [](const SimRequest& request) { return request.tenant; });
}

std::vector<GroupOutcome> outcomes_by_priority(const Simulation& simulation, const Slo& slo) {
  return outcomes(simulation, slo, [](const SimRequest& request) { return request.priority; });
}

std::string cost_text(const backend::sim::CostModel& of) {
  if (const backend::sim::FittedCost* const fitted = of.fitted()) {
    return fmt::format("fitted to steps of {} on {}", fitted->model, fitted->machine);
  }
  if (const backend::sim::RooflineCost* const roofline = of.roofline()) {
    return fmt::format(
        "roofline: {} on {}, {:.4g} GB/s, {:.4g} TFLOP/s, {:.3g} ms a step, {:.3g} GB/s to the host",
        roofline->model, roofline->machine, roofline->bandwidth / 1e9, roofline->rate / 1e12,
        roofline->overhead_s * 1e3, roofline->host_link / 1e9);
  }
  const backend::sim::LinearCost& cost = *of.linear();
  const auto ms = [](Nanos time) { return static_cast<double>(time) / 1e6; };
  return fmt::format(
      "linear: {:g} ms, {} prompt tokens a ms, {:g} ms for a decode, {:g} ms for a further one, {:g} ms for "
      "a moved block",
      ms(cost.step), cost.prefill_tokens_per_ms, ms(cost.decode), ms(cost.decode_more), ms(cost.swap_block));
}

std::string_view refusal_key(Refusal why) {
  constexpr std::string_view kKeys[] = {"too_long_for_model", "too_long_for_pool", "queue_full",
                                        "conversation"};
  static_assert(std::size(kKeys) == kNumRefusals);
  return kKeys[static_cast<size_t>(why)];
}

std::string_view refusal_text(Refusal why) {
  switch (why) {
    case Refusal::kTooLongForModel:
      return "too long for the model";
    case Refusal::kTooLongForPool:
      return "too long for the pool";
    case Refusal::kQueueFull:
      return "when the queue was full";
    case Refusal::kConversation:
      return "after an earlier turn of their conversation";
  }
  return "";
}

std::vector<std::string> refusal_texts(const Simulation& simulation) {
  const SimulationTotals& totals = simulation.totals();
  std::vector<std::string> texts;
  for (size_t i = 0; i < kNumRefusals; ++i) {
    if (totals.refused_by[i] == 0) continue;
    const SimRequest& first = simulation.workload().requests[totals.first_refused_by[i]];
    texts.push_back(fmt::format(
        "{} {}, the first {} with {} tokens", with_commas(totals.refused_by[i]),
        refusal_text(static_cast<Refusal>(i)),
        first.line > 0 ? fmt::format("in line {} of the trace", with_commas(first.line))
                       : fmt::format("number {}", with_commas(uint64_t{totals.first_refused_by[i]} + 1)),
        with_commas(uint64_t{first.prompt_length} + first.output_length)));
  }
  return texts;
}

}  // namespace quire::sim
