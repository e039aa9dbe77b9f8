#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "record/live_view.h"

namespace quire::record {
class LiveRun;
class RunTap;
}  // namespace quire::record

namespace quire::engine {

class Engine;

/// Tells readers what an engine's scheduler does while it does it, about ten times a second, from a thread of
/// its own. While there is no reader, the engine is not watched and the thread sleeps.
class LiveFeed {
 public:
  static constexpr size_t kMostReaders = 16;

  /// What one reader is told: server-sent events (docs/live.md). One that reads slowly is told later; if too
  /// much waits for it, it is told from the present state on.
  class Reader {
   public:
    explicit Reader(std::optional<uint64_t> tenant) : view_(tenant) {}
    /// What is there to be sent; empty if nothing is. Any thread.
    std::string take();
    /// It wants no more. Any thread.
    void leave() noexcept { left_ = true; }

   private:
    friend class LiveFeed;
    std::mutex mutex_;  // guards the following member
    std::string told_;
    std::atomic<bool> left_ = false;
    // The feed's thread only.
    record::LiveView view_;
    bool joined_ = false;
    Nanos last_ = 0;  // when it was last told
  };

  /// Both must outlive it. `clock`: the engine's.
  LiveFeed(Engine& engine, const Clock& clock);
  ~LiveFeed();

  /// A reader who is told of one tenant's sequences only, or of everything; null if there are too many
  /// readers, or after close(). Any thread.
  std::shared_ptr<Reader> join(std::optional<uint64_t> tenant);
  /// No reader is told any more. Any thread.
  void close();
  bool closed() const { return closed_; }

 private:
  static constexpr size_t kMostWaiting = 4 << 20;  // bytes, for one reader

  using Readers = std::vector<std::shared_ptr<Reader>>;
  void run();
  void follow(const Readers& readers);
  void tell(Reader& reader, Nanos now);
  void begin_anew();
  void stop_watching();

  Engine& engine_;
  const Clock& clock_;

  // The feed's thread only.
  std::shared_ptr<record::RunTap> tap_;
  std::unique_ptr<record::LiveRun> run_;
  bool asked_ = false;  // for a new start

  std::mutex mutex_;  // guards the following members
  std::condition_variable wake_;
  Readers readers_;
  std::atomic<bool> closed_ = false;
  std::thread thread_;
};

}  // namespace quire::engine
