#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "sim/workload.h"

namespace quire::sim {

/// A request of a workload, its number in it, and what a stream needs to know to find the one after it.
struct NumberedRequest {
  uint32_t number = 0;
  SimRequest request;
  uint32_t history_length = 0;  // of a turn that continues: the tokens of the prompt and answer before it
  // Of one that was drawn.
  uint32_t conversation = 0;  // its number
  uint32_t turns_left = 0;    // of the conversation, after it
};
/// Null: there is none.
using RequestPtr = std::shared_ptr<const NumberedRequest>;

/// The requests of a workload, one after the other: nobody needs to keep all. Each is either one that follows
/// no other, or the follower of exactly one. Not thread-safe.
class RequestStream {
 public:
  explicit RequestStream(WorkloadSettings settings) : settings_(std::move(settings)) {}
  RequestStream(const RequestStream&) = delete;
  RequestStream& operator=(const RequestStream&) = delete;
  virtual ~RequestStream() = default;

  const WorkloadSettings& settings() const { return settings_; }
  /// How many requests there are in all, whatever was handed out.
  virtual size_t size() const = 0;
  /// The next of the requests that follow no other, in order of arrival and then of their numbers.
  virtual RequestPtr next_first() = 0;
  /// The one that awaits the end of `request`, which is of this stream. The same each time.
  virtual RequestPtr follower(const NumberedRequest& request) = 0;

 private:
  WorkloadSettings settings_;
};

/// Calls `visit` for `first` and all that follow it, one after the other.
void visit_chain(RequestStream& requests, RequestPtr first,
                 const std::function<void(const NumberedRequest&)>& visit);

/// The requests of a list.
class ListedRequests final : public RequestStream {
 public:
  /// Throws Error if a request follows a later one, or one that another follows.
  explicit ListedRequests(std::shared_ptr<const Workload> workload);

  size_t size() const override { return workload_->requests.size(); }
  RequestPtr next_first() override;
  RequestPtr follower(const NumberedRequest& request) override;

 private:
  RequestPtr at(size_t number) const;

  std::shared_ptr<const Workload> workload_;
  std::vector<std::pair<Nanos, uint32_t>> first_;  // those that follow no other, in order of arrival
  size_t next_first_ = 0;
  std::vector<uint32_t> followers_;  // by number; empty: nothing follows another
};

/// A stream of `workload`, which must outlive it. Throws as ListedRequests does.
std::unique_ptr<RequestStream> stream_of(const Workload& workload);

/// All of `requests`, of which none was handed out yet, in order of their numbers.
Workload listed(RequestStream& requests);

}  // namespace quire::sim
