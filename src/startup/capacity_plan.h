#pragma once

#include <string>
#include <vector>

#include "startup/capacity.h"

// What a machine carries, and what would let it carry more.
namespace quire::startup {

/// One change of the options, and what would be carried with it.
struct Change {
  std::string flag;         // "--kv-cache-dtype int8"
  bool is_setting = false;  // of the server: neither more memory nor shorter sequences
  Users users;
  double alone = 0;  // tokens per second that a single user would get, at most; 0: unknown
};

struct CapacityPlan {
  Capacity capacity;
  std::vector<Change> changes;  // those that gain most users first, then most for a single user
  std::string advice;           // the limit, and what to change first, in one sentence
};

/// Throws Error "--memory: ..." that says how much is needed if the weights do not fit, and Error naming a
/// flag if the demand is out of the model's range or a format unknown. Pure, like capacity_of.
CapacityPlan make_capacity_plan(const ModelOutline& model, const NumberFormats& formats,
                                const backend::MachineSpeed& speed, const Demand& demand);

}  // namespace quire::startup
