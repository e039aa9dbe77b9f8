#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace quire::serve {

/// One bound on the memory of whole answers that wait for their clients to read them.
///
/// Nothing that has been worked out is refused for it: new work waits instead. A client (a tenant, or an
/// address without keys) has no long job begun while its unread answers take a quarter of the bound, and no
/// short one at three quarters; nobody has a long job begun while all unread answers take three quarters, and
/// a short one at the whole. As the size of an answer is known only when it is there, the bound can be
/// exceeded by the answers of the jobs that are being worked on at a time.
///
/// Where work waits because of all answers together, the client that holds the most makes way with those that
/// it reads slowly; otherwise an answer ends at the latest with ServerConfig::write_timeout. Thread-safe.
class AnswerBudget {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Job : uint8_t { kShort, kLong };

  /// An answer this small counts as part of its connection.
  static constexpr uint64_t kUncounted = 16 << 10;
  /// For this long work counts as waiting after it has been told so.
  static constexpr std::chrono::seconds kWanted{1};

  explicit AnswerBudget(uint64_t max_bytes, std::function<Clock::time_point()> now = &Clock::now);

  /// Whether a job of `client` may begin. Who is told no asks again within kWanted.
  bool may_begin(uint64_t client, Job job);
  /// Held now, without what is small.
  uint64_t used() const;

  /// What one answer holds, from now until the claim goes. Belongs to one thread at a time. The budget must
  /// outlive it.
  class Claim {
   public:
    Claim() = default;  // holds nothing
    Claim(AnswerBudget& budget, uint64_t client, uint64_t bytes);
    ~Claim() { release(); }
    Claim(Claim&& other) noexcept { *this = std::move(other); }
    Claim& operator=(Claim&& other) noexcept;

    bool holds() const { return budget_ != nullptr; }
    /// Whether the answer is to be given up if its client reads it slowly.
    bool must_make_way() const { return holds() && budget_->must_make_way(client_); }
    void release();

   private:
    AnswerBudget* budget_ = nullptr;
    uint64_t client_ = 0;
    uint64_t bytes_ = 0;
  };

 private:
  struct Wanted {
    uint64_t below = 0;  // what all answers must take less than
    Clock::time_point since;
  };
  void hold(uint64_t client, uint64_t bytes);
  void give_back(uint64_t client, uint64_t bytes);
  bool must_make_way(uint64_t client) const;

  const uint64_t max_bytes_;
  const std::function<Clock::time_point()> now_;

  mutable std::mutex mutex_;  // guards what follows
  uint64_t used_ = 0;
  std::map<uint64_t, uint64_t> clients_;  // bytes of those that hold some
  std::optional<Wanted> wanted_;
};

}  // namespace quire::serve
