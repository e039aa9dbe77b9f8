#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "sim/request_stream.h"
#include "sim/service_draws.h"
#include "sim/workload_arrivals.h"
#include "sim/zipf.h"

namespace quire::sim {

/// The number of the first request of each conversation. Which number that is depends on the lengths of all
/// conversations before it; so that they are not counted each time, one number of 64 is kept.
class ConversationStarts {
 public:
  ConversationStarts(uint64_t seed, const Lengths& turns, uint32_t num_requests);
  /// `num_requests` if there are not so many conversations.
  uint32_t of(uint64_t conversation);
  /// The length of the conversation that begins with this request.
  uint32_t turns_from(uint32_t start) const;

 private:
  struct Known {
    uint64_t conversation = 0;
    uint64_t start = 0;
  };

  uint64_t seed_;
  Lengths turns_;
  uint32_t num_requests_;
  std::vector<uint32_t> every_64th_;
  Known last_;  // that was asked for
};

/// Draws the requests of a workload when they are asked for. Needs memory for the users of a closed loop, the
/// shared prefixes and the tenants, and 4 bytes for 64 conversations of a closed loop; not for requests.
class GeneratedRequests final : public RequestStream {
 public:
  /// Throws Error if a value is invalid.
  explicit GeneratedRequests(const WorkloadConfig& config);

  size_t size() const override { return config_.num_requests; }
  RequestPtr next_first() override;
  RequestPtr follower(const NumberedRequest& request) override;

 private:
  std::optional<NumberedRequest> begin(uint64_t conversation);
  NumberedRequest next_turn(const NumberedRequest& before) const;

  WorkloadConfig config_;
  Zipf prefixes_;
  ArrivalTimes times_;
  std::optional<ServiceDraws> service_;
  ConversationStarts starts_;
  uint64_t next_conversation_ = 0;                       // of an open loop
  std::vector<std::pair<Nanos, uint32_t>> first_sends_;  // of a closed loop: the users' first, by time
  size_t next_send_ = 0;
};

}  // namespace quire::sim
