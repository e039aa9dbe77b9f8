#include "sim/report.h"

#include <algorithm>
#include <utility>

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

}  // namespace quire::sim
