#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace quire::serve {

/// A limit on the memory of complete answers that wait for their clients to read them.
///
/// No computed answer is refused because of it: new work waits instead. No long job of a client (a tenant, or
/// without keys an address) starts while its unread answers take a quarter of the limit, and no short one at
/// three quarters. No long job of any client starts while all unread answers together take three quarters,
/// and no short one at the full limit. Since the size of an answer is known only when it is complete, the
/// limit can be exceeded by the answers of the jobs in progress.
///
/// While work waits because of all answers together, the client that holds the most loses the answers that it
/// reads slowly; otherwise an answer ends at the latest after ServerConfig::write_timeout. Thread-safe.
class AnswerBudget {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Job : uint8_t { kShort, kLong };

  /// An answer this small counts as part of its connection.
  static constexpr uint64_t kUncounted = 16 << 10;
  /// For this long after may_begin() returned false, work counts as waiting.
  static constexpr std::chrono::seconds kWanted{1};

  explicit AnswerBudget(uint64_t max_bytes, std::function<Clock::time_point()> now = &Clock::now);

  /// Whether a job of `client` may start. If not, the caller asks again within kWanted.
  bool may_begin(uint64_t client, Job job);
  /// Bytes held now, without uncounted answers.
  uint64_t used() const;

  /// The bytes that one answer holds while the claim exists. For one thread at a time. The budget must
  /// outlive it.
  class Claim {
   public:
    Claim() = default;  // holds nothing
    Claim(AnswerBudget& budget, uint64_t client, uint64_t bytes);
    ~Claim() { release(); }
    Claim(Claim&& other) noexcept { *this = std::move(other); }
    Claim& operator=(Claim&& other) noexcept;

    bool holds() const { return budget_ != nullptr; }
    /// Whether the answer is to be dropped if its client reads it slowly.
    bool must_make_way() const { return holds() && budget_->must_make_way(client_); }
    void release();

   private:
    AnswerBudget* budget_ = nullptr;
    uint64_t client_ = 0;
    uint64_t bytes_ = 0;
  };

 private:
  struct Wanted {
    uint64_t below = 0;  // work waits until all answers take less than this
    Clock::time_point since;
  };
  void hold(uint64_t client, uint64_t bytes);
  void give_back(uint64_t client, uint64_t bytes);
  bool must_make_way(uint64_t client) const;

  const uint64_t max_bytes_;
  const std::function<Clock::time_point()> now_;

  mutable std::mutex mutex_;  // guards the following members
  uint64_t used_ = 0;
  std::map<uint64_t, uint64_t> clients_;  // bytes of the clients that hold some
  std::optional<Wanted> wanted_;
};

}  // namespace quire::serve
