#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "base/token_list.h"
#include "sim/request_stream.h"
#include "sim/workload.h"

namespace quire::sim {

/// Hands out the requests of a workload when they are due, those of an open loop at their times, and those
/// that follow another after they were told of its end. It makes the prompts, with the history of a
/// conversation as it really was. Decides by times and numbers only, so that the same ends at the same times
/// give the same requests. Keeps the requests that were taken and have not ended, and those that follow them.
/// Not thread-safe.
class WorkloadSource {
 public:
  explicit WorkloadSource(std::unique_ptr<RequestStream> requests);
  /// `workload` must outlive it. Throws Error as ListedRequests does.
  explicit WorkloadSource(const Workload& workload) : WorkloadSource(stream_of(workload)) {}

  const WorkloadSettings& settings() const { return requests_->settings(); }
  /// How many requests there are in all.
  size_t size() const { return requests_->size(); }
  /// When the next request is due; nullopt: none is, before another has ended.
  std::optional<Nanos> next() const;
  /// That request's number. REQUIRES: next() is not nullopt.
  size_t take();
  /// Requests that were not handed out yet and may be.
  size_t left() const { return left_; }
  /// Requests and histories that are in memory. 0 after the last request.
  size_t kept() const;

  /// The numbers of those that were taken and have not ended, in order.
  std::vector<size_t> sent() const;

  // Of a request that was taken and that has not ended.
  const SimRequest& request(size_t number) const { return taken_.at(number).request->request; }
  /// When it was due.
  Nanos due(size_t number) const { return taken_.at(number).due; }
  /// The number of the request that continues it.
  std::optional<size_t> next_turn(size_t number) const;
  /// Its prompt; once.
  std::vector<TokenId> prompt(size_t number);
  /// The same, made when it is read, and again when it was forgotten; of a later turn, at once. May outlive
  /// the request, but not this source.
  TokenList prompt_on_demand(size_t number);
  /// Whether another request continues it; of others, sampled() has no effect.
  bool keeps_answer(size_t number) const { return next_turn(number).has_value(); }
  /// A token of its (first) answer.
  void sampled(size_t number, TokenId token) {
    if (!histories_.empty()) add_to_history(number, token);
  }
  /// It has ended, and what follows it is due after its think time.
  void ended(size_t number, Nanos now);
  using Visit = std::function<void(const NumberedRequest&)>;
  /// It was refused or has failed: later turns of its conversation are never sent, and `unsent` is called for
  /// each. What follows them is due after its think time.
  void gave_up(size_t number, Nanos now, const Visit& unsent);

  /// Calls `unsent` for each request that was not handed out, in no certain order. For the end of a run that
  /// was broken off: no further request can be taken or told of.
  void visit_unsent(const Visit& unsent);

 private:
  struct Taken {
    Nanos due = 0;
    RequestPtr request;
    RequestPtr after;  // the one that follows it
  };
  struct Due {
    Nanos at = 0;
    RequestPtr request;
    bool operator>(const Due& other) const {
      return at != other.at ? at > other.at : request->number > other.request->number;
    }
  };
  /// Gives the history of a first turn its prompt, which it lacks until there is a token of the answer.
  void begin_history(size_t number, std::vector<TokenId>& history) const;
  void add_to_history(size_t number, TokenId token);
  void make_due(RequestPtr request, Nanos before_ended);
  bool first_is_next() const;

  std::unique_ptr<RequestStream> requests_;
  RequestPtr first_;                                                // the next that follows no other
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;  // those that follow another
  std::unordered_map<size_t, Taken> taken_;                         // by number
  size_t left_;
  /// Of conversations that go on: prompt and answer of the last turn, by the number of that turn, or of the
  /// next one once it has ended.
  std::unordered_map<size_t, std::vector<TokenId>> histories_;
};

}  // namespace quire::sim
