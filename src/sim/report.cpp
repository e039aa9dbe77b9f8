#include "sim/report.h"

#include <iterator>

#include <fmt/format.h>

#include "base/amounts.h"
#include "record/display_text.h"

namespace quire::sim {

ReportBuilder::ReportBuilder(Simulation& simulation, const Slo& slo) : simulation_(simulation), slo_(slo) {
  simulation.listen(*this);
}

void ReportBuilder::Times::add(const RequestRecord& record, std::optional<Nanos> tpot_of_it, bool coarsely) {
  ttft.add(record.ttft());
  e2e.add(record.e2e());
  if (tpot_of_it) tpot.add(*tpot_of_it);
  if (!coarsely) return;
  for (TimeSummary* const each : {&ttft, &tpot, &e2e}) each->coarsen();
}

std::array<ReportBuilder::Group*, 2> ReportBuilder::groups_of(const SimRequest& request) {
  return {&tenants_[request.tenant], &priorities_[request.priority]};
}

void ReportBuilder::finished(const SimulatedRequest& of) {
  const RequestRecord& record = of.record;
  const std::optional<Nanos> tpot = record.tpot(simulation_.settings().choices);
  // Of all groups at once: else many groups would keep many times.
  const bool coarsely = simulation_.totals().finished > TimeSummary::kMostExact;
  const uint64_t in_time = record.in_time ? 1 : 0;
  const uint64_t good = slo_.met_by(record.ttft(), tpot, record.e2e()) ? 1 : 0;
  sums_.prompt_tokens += record.prompt_tokens;
  sums_.output_tokens += record.output_tokens;
  sums_.in_time += in_time;
  sums_.good += good;
  queue_.add(record.admitted - record.arrival);
  times_.add(record, tpot, coarsely);
  for (Group* const group : groups_of(of.request)) {
    ++group->outcome.requests;
    ++group->outcome.finished;
    group->outcome.in_time += in_time;
    group->outcome.good += good;
    group->outcome.output_tokens += record.output_tokens;
    group->times.add(record, tpot, coarsely);
  }
}

void ReportBuilder::refused(const SimulatedRequest& of, Nanos /*now*/) {
  for (Group* const group : groups_of(of.request)) {
    ++group->outcome.requests;
    ++group->outcome.refused;
  }
}

void ReportBuilder::unfinished(const SimulatedRequest& of, Nanos /*now*/) {
  for (Group* const group : groups_of(of.request)) ++group->outcome.requests;
}

SimulationReport ReportBuilder::report() const {
  SimulationReport report = sums_;
  report.requests = simulation_.num_requests();
  report.queue = queue_.percentiles();
  report.ttft = times_.ttft.percentiles();
  report.tpot = times_.tpot.percentiles();
  report.e2e = times_.e2e.percentiles();
  report.elapsed = simulation_.now();
  report.totals = simulation_.totals();
  report.last = simulation_.stats();
  report.digest = simulation_.digest();
  report.decision_digest = simulation_.scheduler().digest();
  report.extrapolated = simulation_.executor().extrapolated();
  return report;
}

std::vector<GroupOutcome> ReportBuilder::outcomes(const Groups& groups) {
  std::vector<GroupOutcome> out;
  out.reserve(groups.size());
  for (const auto& [number, group] : groups) {
    GroupOutcome& outcome = out.emplace_back(group.outcome);
    outcome.of = number;
    outcome.ttft = group.times.ttft.percentiles();
    outcome.tpot = group.times.tpot.percentiles();
    outcome.e2e = group.times.e2e.percentiles();
  }
  return out;
}

std::vector<GroupOutcome> ReportBuilder::by_tenant() const { return outcomes(tenants_); }

std::vector<GroupOutcome> ReportBuilder::by_priority() const { return outcomes(priorities_); }

std::string cost_text(const backend::sim::CostModel& of) {
  if (const backend::sim::FittedCost* const fitted = of.fitted()) {
    return fmt::format("fitted to steps of {} on {}{}", record::printable(fitted->model),
                       record::printable(fitted->machine),
                       fitted->warning.empty() ? "" : "; warning: " + record::printable(fitted->warning));
  }
  if (const backend::sim::RooflineCost* const roofline = of.roofline()) {
    return fmt::format(
        "roofline: {} on {}, {:.4g} GB/s, {:.4g} TFLOP/s, {:.3g} ms a step, {:.3g} GB/s to the host",
        record::printable(roofline->model), roofline->machine, roofline->bandwidth / 1e9,
        roofline->rate / 1e12, roofline->overhead_s * 1e3, roofline->host_link / 1e9);
  }
  const backend::sim::LinearCost& cost = *of.linear();
  const auto ms = [](Nanos time) { return static_cast<double>(time) / 1e6; };
  return fmt::format(
      "linear: {:g} ms, {} prompt tokens a ms, {:g} ms for a decode, {:g} ms for a further one, {:g} ms for "
      "a moved block",
      ms(cost.step), cost.prefill_tokens_per_ms, ms(cost.decode), ms(cost.decode_more), ms(cost.swap_block));
}

std::string extrapolation_text(uint64_t extrapolated, uint64_t steps) {
  if (extrapolated == 0) return {};
  return fmt::format(
      "{} of {} steps lie beyond what the cost model was fitted to (more of some count, as "
      "tokens, context or copies, fewer tokens or sequences, or another kind of step): their times are "
      "extrapolated",
      with_commas(extrapolated), with_commas(steps));
}

std::string interruption_text(uint64_t unfinished, uint64_t requests) {
  if (unfinished == 0) return {};
  return fmt::format("Interrupted: {} of {} requests had not ended.", with_commas(unfinished),
                     with_commas(requests));
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

std::vector<std::string> refusal_texts(const SimulationTotals& totals) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < kNumRefusals; ++i) {
    if (totals.refused_by[i] == 0) continue;
    const RefusedRequest& first = totals.first_refused[i];
    texts.push_back(fmt::format("{} {}, the first {} with {} tokens", with_commas(totals.refused_by[i]),
                                refusal_text(static_cast<Refusal>(i)),
                                first.line > 0
                                    ? fmt::format("in line {} of the trace", with_commas(first.line))
                                    : fmt::format("number {}", with_commas(uint64_t{first.number} + 1)),
                                with_commas(first.tokens)));
  }
  return texts;
}

}  // namespace quire::sim
