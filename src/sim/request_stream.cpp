#include "sim/request_stream.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace quire::sim {

void visit_chain(RequestStream& requests, RequestPtr first,
                 const std::function<void(const NumberedRequest&)>& visit) {
  for (; first != nullptr; first = requests.follower(*first)) visit(*first);
}

ListedRequests::ListedRequests(std::shared_ptr<const Workload> workload)
    : RequestStream(*workload), workload_(std::move(workload)) {
  const std::vector<SimRequest>& requests = workload_->requests;
  for (size_t i = 0; i < requests.size(); ++i) {
    const SimRequest& request = requests[i];
    if (request.follows == kNoRequest) {
      first_.emplace_back(request.arrival, i);
      continue;
    }
    if (followers_.empty()) followers_.resize(requests.size(), kNoRequest);
    if (request.follows >= i || followers_[request.follows] != kNoRequest) {
      throw Error(fmt::format("workload: request {} cannot follow request {}", i, request.follows));
    }
    followers_[request.follows] = static_cast<uint32_t>(i);
  }
  std::sort(first_.begin(), first_.end());
}

RequestPtr ListedRequests::at(size_t number) const {
  const SimRequest& request = workload_->requests[number];
  NumberedRequest out{.number = static_cast<uint32_t>(number), .request = request};
  if (request.continues) {
    const SimRequest& before = workload_->requests[request.follows];
    out.history_length = before.prompt_length + before.output_length;
  }
  return std::make_shared<const NumberedRequest>(std::move(out));
}

RequestPtr ListedRequests::next_first() {
  return next_first_ < first_.size() ? at(first_[next_first_++].second) : nullptr;
}

RequestPtr ListedRequests::follower(const NumberedRequest& request) {
  if (followers_.empty() || followers_[request.number] == kNoRequest) return nullptr;
  return at(followers_[request.number]);
}

std::unique_ptr<RequestStream> stream_of(const Workload& workload) {
  return std::make_unique<ListedRequests>(
      std::shared_ptr<const Workload>(std::shared_ptr<const Workload>(), &workload));
}

Workload listed(RequestStream& requests) {
  Workload workload;
  static_cast<WorkloadSettings&>(workload) = requests.settings();
  workload.requests.resize(requests.size());
  while (RequestPtr first = requests.next_first()) {
    visit_chain(requests, std::move(first),
                [&](const NumberedRequest& each) { workload.requests[each.number] = each.request; });
  }
  return workload;
}

}  // namespace quire::sim
