#include "sim/report.h"

#include <algorithm>
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

SimulationReport make_report(const Simulation& simulation) {
  SimulationReport report;
  std::vector<Nanos> queue;
  std::vector<Nanos> ttft;
  std::vector<Nanos> tpot;
  std::vector<Nanos> e2e;
  for (const RequestRecord& record : simulation.records()) {
    if (record.finished < 0) continue;
    report.prompt_tokens += record.prompt_tokens;
    report.output_tokens += record.output_tokens;
    report.in_time += record.in_time ? 1 : 0;
    queue.push_back(record.admitted - record.arrival);
    ttft.push_back(record.first_token - record.arrival);
    e2e.push_back(record.finished - record.arrival);
    const uint32_t each = record.output_tokens / simulation.workload().choices;
    if (each > 1) tpot.push_back((record.finished - record.first_token) / (each - 1));
  }
  report.requests = simulation.records().size();
  report.queue = percentiles(std::move(queue));
  report.ttft = percentiles(std::move(ttft));
  report.tpot = percentiles(std::move(tpot));
  report.e2e = percentiles(std::move(e2e));
  report.elapsed = simulation.now();
  report.totals = simulation.totals();
  report.last = simulation.stats();
  report.digest = simulation.digest();
  report.decision_digest = simulation.scheduler().digest();
  return report;
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
