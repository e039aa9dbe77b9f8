#include "cli/simulate_tables.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/file_error.h"
#include "cli/text_table.h"
#include "sim/report.h"

namespace quire::cli {
namespace {

std::string last_head(const std::string& costs_of) { return costs_of.empty() ? "" : ",cost"; }
std::string last_cell(const std::string& costs_of) {
  return costs_of.empty() ? "" : "," + csv_cell(costs_of);
}

}  // namespace

const FileKind StepTable::kKind{
    "table of steps of quire simulate",
    "step,end_ns,running,waiting,prefill_tokens,decode_tokens,blocks,blocks_held,blocks_shared,"
    "swapped_out,swapped_in,preemptions,evictions"};

const FileKind kRequestTable{
    "table of requests of quire simulate",
    "request,line,tenant,priority,arrival_ns,admitted_ns,first_token_ns,finished_ns,ttft_ns,tpot_ns,"
    "prompt_tokens,output_tokens,cached_tokens,preemptions,in_time,good,refused"};

StepTable::StepTable(std::string path, const std::string& costs_of)
    : path_(std::move(path)), last_cell_(last_cell(costs_of)) {
  if (path_.empty()) return;
  file_.open(path_);
  file_ << kKind.begins << ",extrapolated" << last_head(costs_of) << "\n";
}

void StepTable::add(const sim::Simulation& simulation) {
  if (path_.empty()) return;
  const control::StepStats& of = simulation.stats();
  file_ << fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{}{}\n", of.step, simulation.now(),
                       simulation.step_planned().running, of.waiting, of.prefill_tokens, of.decode_tokens,
                       of.blocks_total, simulation.step_planned().blocks_held, of.blocks_shared,
                       of.swapped_out, of.swapped_in, of.total_preemptions, of.total_evictions,
                       simulation.step_extrapolated() ? 1 : 0, last_cell_);
}

void StepTable::end() {
  if (path_.empty()) return;
  file_.close();
  if (file_.fail()) throw file_error(path_, "cannot be written");
}

std::string request_table(const sim::KeptRequests& requests, const sim::Slo& slo,
                          const std::string& costs_of) {
  const std::string last = last_cell(costs_of);
  std::string out = fmt::format("{}{}\n", kRequestTable.begins, last_head(costs_of));
  const uint32_t choices = requests.simulation().settings().choices;
  size_t number = 0;
  for (const sim::KeptRequest& record : requests.records()) {
    ++number;
    if (!record.has_history()) continue;
    const auto time = [](Nanos at) { return at < 0 ? std::string() : std::to_string(at); };
    const std::optional<Nanos> each = record.tpot(choices);
    const bool done = record.finished >= 0;
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}{}\n", number, record.line,
                       record.tenant, record.priority, time(record.arrival), time(record.admitted),
                       time(record.first_token), time(record.finished), done ? time(record.ttft()) : "",
                       done && each ? time(*each) : "", record.prompt_tokens, record.output_tokens,
                       record.cached_tokens, record.preemptions, record.in_time ? 1 : 0,
                       !slo.any()                                              ? ""
                       : done && slo.met_by(record.ttft(), each, record.e2e()) ? "1"
                                                                               : "0",
                       record.refused ? sim::refusal_key(*record.refused) : "", last);
  }
  return out;
}

}  // namespace quire::cli
