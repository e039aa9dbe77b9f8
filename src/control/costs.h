#pragma once

#include "base/ids.h"

namespace quire::control {

/// What the control plane assumes that operations cost. It only chooses between ways that are all correct.
struct CostHints {
  Nanos prefill_token = 5'000'000;
  Nanos decode_token = 40'000'000;  // of one sequence, in a batch
  Nanos swap_block = 200'000;       // one block to the host, or back
};

}  // namespace quire::control
