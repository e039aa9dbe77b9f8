#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace quire {

/// Jobs of many clients, each with a cost: self-clocked fair queueing. The clients take turns, so that each
/// gets the same share of the work, however many jobs it has queued. Of one client's jobs, a short one goes
/// before a long one that arrived at the same time, and a long one waits for no more short ones than its own
/// cost. No job starves, however many others arrive: each job taken advances the virtual time, and a job's
/// virtual finish is at least its cost after its arrival. Not thread-safe.
///
/// S. J. Golestani: A self-clocked fair queueing scheme for broadband applications, INFOCOM 1994.
template <class Job>
class FairQueue {
 public:
  /// Names a job; never 0.
  using Ticket = uint64_t;

  /// REQUIRES: cost > 0.
  Ticket push(uint64_t client, uint64_t cost, Job job) {
    // A client without jobs accumulates no turns.
    Client& its = clients_.try_emplace(client, Client{.served = now_, .jobs = {}}).first->second;
    const Ticket ticket = ++tickets_;
    its.jobs.emplace(Key{its.served + cost, ticket}, Entry{cost, std::move(job)});
    ++size_;
    return ticket;
  }

  /// Takes the next job; empty if there is none.
  std::optional<Job> pop() {
    return pop([](uint64_t) { return true; });
  }

  /// The same, among the clients for which `may` returns true. The other clients accumulate no turns.
  template <class May>
  std::optional<Job> pop(const May& may) {
    auto next = clients_.end();
    uint64_t earliest = 0;
    for (auto it = clients_.begin(); it != clients_.end(); ++it) {
      const uint64_t finish = it->second.served + it->second.jobs.begin()->second.cost;
      if (next != clients_.end() && finish >= earliest) continue;
      if (!may(it->first)) {
        it->second.served = now_;
        continue;
      }
      next = it;
      earliest = finish;
    }
    if (next == clients_.end()) return std::nullopt;
    Client& client = next->second;
    Entry entry = std::move(client.jobs.begin()->second);
    client.jobs.erase(client.jobs.begin());
    --size_;
    client.served = earliest;
    now_ = std::max(now_, earliest);
    if (client.jobs.empty()) clients_.erase(next);
    return std::move(entry.job);
  }

  /// Removes a job out of turn; empty if it is no longer queued.
  std::optional<Job> remove(uint64_t client, Ticket ticket) {
    const auto its = clients_.find(client);
    if (its == clients_.end()) return std::nullopt;
    auto& jobs = its->second.jobs;
    const auto found =
        std::find_if(jobs.begin(), jobs.end(), [&](const auto& each) { return each.first.second == ticket; });
    if (found == jobs.end()) return std::nullopt;
    Job job = std::move(found->second.job);
    jobs.erase(found);
    --size_;
    if (jobs.empty()) clients_.erase(its);
    return job;
  }

  size_t size() const { return size_; }
  /// The number of clients with an entry, that is, with a job.
  size_t num_clients() const { return clients_.size(); }

 private:
  using Key =
      std::pair<uint64_t, Ticket>;  // what the client had been served when the job arrived, plus its cost
  struct Entry {
    uint64_t cost = 0;
    Job job;
  };
  /// A client with a job. `served` is never beyond now_, so a client without jobs needs no entry.
  struct Client {
    uint64_t served = 0;  // virtual time
    std::map<Key, Entry> jobs;
  };

  std::map<uint64_t, Client> clients_;
  uint64_t now_ = 0;  // the latest virtual finish of the jobs taken
  Ticket tickets_ = 0;
  size_t size_ = 0;
};

}  // namespace quire
