#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <utility>

namespace quire::serve {

/// A limit on the memory of all request bodies that a server holds.
///
/// No client (a tenant, or without keys an address) holds more than half of it while it has several bodies.
/// When there is no room, a body that arrives slowly is dropped: of the client that holds the most, the body
/// that has held the most bytes for the longest. A body counts as slow if it is older than a second and has
/// arrived at less than 1 MiB/s, or not at all for a second. If no body is slow, the new body is refused.
///
/// Thread-safe; a Claim belongs to one thread at a time.
class BodyBudget {
 public:
  using Clock = std::chrono::steady_clock;

  /// A body this small counts as part of its connection.
  static constexpr uint64_t kUncounted = 16 << 10;
  static constexpr uint64_t kSlowBytesPerSecond = 1 << 20;
  static constexpr std::chrono::seconds kGrace{1};

  explicit BodyBudget(uint64_t max_bytes, std::function<Clock::time_point()> now = &Clock::now);

  uint64_t max_bytes() const { return max_bytes_; }
  /// Bytes held now, without uncounted bodies.
  uint64_t used() const;

  /// The bytes that one body holds; its destructor releases them.
  class Claim {
   public:
    /// `make_way` is called from any thread, with the budget locked, when the body is to be dropped: it must
    /// neither block nor call the budget, and must cause the claim to be released soon.
    Claim(BodyBudget& budget, std::function<void()> make_way)
        : budget_(budget), make_way_(std::move(make_way)) {}
    ~Claim() { release(); }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

    /// To be called before the first byte of a body. The claim must hold nothing.
    void begin(uint64_t client);
    /// Sets the total to `bytes`, if there is room. The total may also decrease.
    bool grow_to(uint64_t bytes);
    /// A part of the body has arrived.
    void progress();
    /// The body is complete: it no longer depends on its client, and is not dropped for others.
    void settle();
    void release();

   private:
    friend class BodyBudget;
    BodyBudget& budget_;
    const std::function<void()> make_way_;
    // Guarded by the budget's mutex.
    uint64_t client_ = 0;
    uint64_t bytes_ = 0;  // counted
    bool listed_ = false;
    bool receiving_ = false;
    Clock::time_point begun_;
    Clock::time_point progress_;
    std::list<Claim*>::iterator place_;
  };

 private:
  // With the mutex held.
  bool grow(Claim& claim, uint64_t bytes);
  void set_bytes(Claim& claim, uint64_t bytes);
  bool fits(const Claim& claim, uint64_t bytes, bool& own_share) const;
  Claim* find_slow(const Claim& asking, uint64_t bytes, bool own_share);

  const uint64_t max_bytes_;
  const std::function<Clock::time_point()> now_;

  mutable std::mutex mutex_;  // guards the following members
  uint64_t used_ = 0;
  std::list<Claim*> claims_;  // the claims that hold bytes
  struct Client {
    uint64_t bytes = 0;
    uint32_t bodies = 0;
  };
  std::map<uint64_t, Client> clients_;
};

}  // namespace quire::serve
