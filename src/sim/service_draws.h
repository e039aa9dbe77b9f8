#pragma once

#include <cstdint>

#include "sim/workload.h"
#include "sim/zipf.h"

namespace quire::sim {

/// For whom a request is, and by when.
struct Service {
  uint32_t tenant = 0;
  int32_t priority = 0;
  Nanos ttft_deadline = 0;
};

/// Draws the service of requests, of each by its number alone.
class ServiceDraws {
 public:
  /// Throws Error if a value is invalid.
  explicit ServiceDraws(const ServiceConfig& config);
  Service draw(size_t number) const;

 private:
  ServiceConfig config_;
  Zipf tenants_;
};

}  // namespace quire::sim
