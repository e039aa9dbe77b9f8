#include "sim/kept_requests.h"

namespace quire::sim {

KeptRequests::KeptRequests(Simulation& simulation)
    : simulation_(simulation), records_(simulation.num_requests()) {
  simulation.listen(*this);
}

void KeptRequests::keep(const SimulatedRequest& of) {
  records_[of.number] = {of.record, of.request.line, of.request.tenant, of.request.priority};
}

}  // namespace quire::sim
