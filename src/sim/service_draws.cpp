#include "sim/service_draws.h"

#include <fmt/format.h>

#include "base/error.h"
#include "control/request.h"
#include "sim/workload_streams.h"

namespace quire::sim {
namespace {

const ServiceConfig& checked_service(const ServiceConfig& config) {
  if (config.num_tenants == 0 || config.num_tenants > 1'000'000 || config.num_priorities == 0 ||
      config.num_priorities > static_cast<uint32_t>(control::kMostPriority)) {
    throw Error(fmt::format("workload: {} tenants and {} priorities, not 1 to 1000000", config.num_tenants,
                            config.num_priorities));
  }
  return config;
}

}  // namespace

ServiceDraws::ServiceDraws(const ServiceConfig& config)
    : config_(checked_service(config)), tenants_(config.num_tenants, 1000) {}

Service ServiceDraws::draw(size_t number) const {
  SplitMix64 random(keyed_random(config_.seed, kService, number));
  Service service;
  service.tenant = tenants_.draw(random);
  service.priority = static_cast<int32_t>(random.below(config_.num_priorities));
  service.ttft_deadline = config_.ttft_deadline_ms.draw(random) * kNanosPerMillisecond;
  return service;
}

}  // namespace quire::sim
