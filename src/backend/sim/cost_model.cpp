#include "backend/sim/cost_model.h"

#include <fmt/format.h>

#include "base/error.h"

namespace quire::backend::sim {
namespace {

constexpr Nanos kMost = 1'000'000'000'000;
constexpr uint64_t kMostPrefill = 1'000'000'000;

void require_time(Nanos time, const char* name) {
  if (time < 0 || time > kMost) {
    throw Error(fmt::format("cost model: {} is {} ns, not 0 to {} ns", name, time, kMost));
  }
}

}  // namespace

void CostModel::check() const {
  require_time(step, "a step");
  require_time(decode, "a decode");
  require_time(decode_more, "a further decode");
  require_time(swap_block, "moving a block");
  if (prefill_tokens_per_ms == 0 || prefill_tokens_per_ms > kMostPrefill) {
    throw Error(fmt::format("cost model: {} prefill tokens a millisecond, not 1 to {}", prefill_tokens_per_ms,
                            kMostPrefill));
  }
  if (decode_more > decode) {
    throw Error(fmt::format("cost model: a further decode takes {} ns, more than the first ({} ns)",
                            decode_more, decode));
  }
}

}  // namespace quire::backend::sim
