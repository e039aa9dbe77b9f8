#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/sim/cost_model.h"
#include "sim/capacity_search.h"
#include "sim/report.h"
#include "sim/slo.h"
#include "startup/capacity.h"

// How many users a planned machine serves within objectives: the server's scheduler in virtual time.
namespace quire::cli {

/// Users who ask again as soon as they have their answer, at first one after the other within the time that
/// an answer takes. No two prompts begin alike.
struct PlannedLoad {
  uint32_t prompt = 0;  // tokens
  uint32_t output = 0;
  sim::Slo slo;
};

struct CarriedLoad {
  sim::LoadLimit users;          // the load is 0 if a single user is too much
  bool by_memory = false;        // no more were tried, because the memory holds no more
  sim::SimulationReport report;  // with so many users, or with one
};

/// The times of steps, and what they let the machine carry, as far as they were asked for.
struct Foresight {
  backend::sim::CostModel cost;  // fitted, or a roofline
  std::string warning;           // of check_cost_file_for: --force has it so
  std::optional<PlannedLoad> load;
  CarriedLoad carried;  // of `load`
};

/// The scheduler has the pool of `capacity`, a slot for each user and the server's defaults. More users than
/// the memory holds are tried only if the objectives limit how long one may wait. Takes a second or two at
/// most, and gives the same every time. Throws Error if the cost model is invalid.
CarriedLoad carried_load(const startup::Capacity& capacity, const startup::Demand& demand,
                         const backend::sim::CostModel& cost, const PlannedLoad& load);

}  // namespace quire::cli
