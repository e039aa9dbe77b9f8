#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "sim/kept_requests.h"
#include "sim/report.h"

// The result of a simulation as a file keeps it. Times are in nanoseconds.
namespace quire::sim {

/// null without times, of which 0 would look best: no request has finished, or all answers have one token.
boost::json::value times_json(const Percentiles& of);
boost::json::object to_json(const backend::sim::CostModel& of);
/// null without objectives.
boost::json::value slo_json(const Slo& slo);

/// All figures but those of single requests.
boost::json::object to_json(const SimulationReport& report, const SimulationConfig& config, const Slo& slo);

/// Adds to them what became of each tenant, each priority and each request of one simulation; nothing of
/// requests without a history.
void add_requests(boost::json::object& root, const ReportBuilder& report, const KeptRequests& requests);

}  // namespace quire::sim
