#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace quire {

/// Jobs of many clients, each with a cost: start-time fair queueing. The clients take turns, so that each
/// gets the same share of the work whatever it has queued; of one client's jobs a short one goes before a
/// long one that came at the same time, and a long one waits for no more short ones than its own cost is
/// worth. Not thread-safe.
///
/// P. Goyal, H. Vin, H. Cheng: Start-time Fair Queuing, SIGCOMM 1996. Clients are ranked by the finish of
/// their next job here, so that a small one goes before a large one.
template <class Job>
class FairQueue {
 public:
  /// Names a job; never 0.
  using Ticket = uint64_t;

  Ticket push(uint64_t client, uint64_t cost, Job job) {
    Client& its = clients_.try_emplace(client, Client{.served = now_, .jobs = {}}).first->second;
    // Who had nothing to do saves up no turns.
    if (its.jobs.empty()) its.served = std::max(its.served, now_);
    const Ticket ticket = ++tickets_;
    its.jobs.emplace(Key{its.served + cost, ticket}, Entry{cost, std::move(job)});
    ++size_;
    return ticket;
  }

  /// The job whose turn it is; none if there is none.
  std::optional<Job> pop() {
    auto next = clients_.end();
    uint64_t earliest = 0;
    for (auto it = clients_.begin(); it != clients_.end();) {
      if (it->second.jobs.empty() && it->second.served <= now_) {
        it = clients_.erase(it);
        continue;
      }
      if (!it->second.jobs.empty()) {
        const uint64_t finish = it->second.served + it->second.jobs.begin()->second.cost;
        if (next == clients_.end() || finish < earliest) {
          next = it;
          earliest = finish;
        }
      }
      ++it;
    }
    if (next == clients_.end()) return std::nullopt;
    Client& client = next->second;
    Entry entry = std::move(client.jobs.begin()->second);
    client.jobs.erase(client.jobs.begin());
    --size_;
    now_ = std::max(now_, client.served);
    client.served += entry.cost;
    forget_if_idle();
    return std::move(entry.job);
  }

  /// Takes a job out of turn; none if it is not there any more.
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
    forget_if_idle();
    return job;
  }

  size_t size() const { return size_; }
  /// Those of whom it keeps something; none while there is no job.
  size_t num_clients() const { return clients_.size(); }

 private:
  using Key = std::pair<uint64_t, Ticket>;  // what the client had been served when it came, and its cost
  struct Entry {
    uint64_t cost = 0;
    Job job;
  };
  struct Client {
    uint64_t served = 0;  // virtual time
    std::map<Key, Entry> jobs;
  };

  /// Without jobs there are no turns to take. What clients have been served would stay for each that comes
  /// once, as now_ stands still while all of them are new.
  void forget_if_idle() {
    if (size_ == 0) clients_.clear();
  }

  std::map<uint64_t, Client> clients_;
  uint64_t now_ = 0;  // the virtual start of the job taken last
  Ticket tickets_ = 0;
  size_t size_ = 0;
};

}  // namespace quire
