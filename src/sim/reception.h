#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/fair_queue.h"
#include "base/ids.h"

namespace quire::sim {

/// How a server receives requests: one at a time, for the same time each. Of those that are sent meanwhile it
/// takes the next as a server does whose tenants have API keys of their own (base/fair_queue.h): tenants take
/// turns, and one tenant's keep their order, but for those that are longer than kOrdinaryPrompt, which let
/// shorter ones pass. Without keys a server's turns are those of addresses, which no workload has. Where
/// receiving takes no time, nothing waits, and all keep their order. Not thread-safe.
class Reception {
 public:
  static constexpr uint64_t kOrdinaryPrompt = 3000;  // tokens; a body of serve::Workers::kOrdinaryBody

  /// `each`: how long a request takes, in nanoseconds; >= 0.
  explicit Reception(Nanos each) : each_(each) {}

  struct Sent {
    size_t request = 0;
    Nanos at = 0;
    friend bool operator==(const Sent&, const Sent&) = default;
  };

  /// A request with a prompt of so many tokens is sent. REQUIRES: `sent.at` is not before that of an earlier
  /// call, nor after next().
  void send(Sent sent, uint64_t tenant, uint64_t tokens) {
    if (current_) {
      queue_.push(tenant, 1 + tokens / kOrdinaryPrompt, sent);
    } else {
      current_ = sent;
      done_ = sent.at + each_;
    }
  }
  /// When the next request has been received; nullopt: all have.
  std::optional<Nanos> next() const { return current_ ? std::optional(done_) : std::nullopt; }
  /// That request. REQUIRES: next() is not nullopt.
  Sent take() {
    done_ += each_;
    return *std::exchange(current_, queue_.pop());
  }

 private:
  const Nanos each_;
  FairQueue<Sent> queue_;        // behind the current one
  std::optional<Sent> current_;  // it is being received
  Nanos done_ = 0;               // when it has been
};

}  // namespace quire::sim
