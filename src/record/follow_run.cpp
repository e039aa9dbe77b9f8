#include "record/follow_run.h"

#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace quire::record {
namespace {

RunFollower follower_of(const RunReader& reader, RunListener& listener) {
  return {RunState(reader.config(), reader.steps_before()), listener};
}

/// Events on their way from one thread to another, in a ring of batches that keep their memory. Each function
/// is for the thread that it names.
class EventRing {
 public:
  struct Batch {
    std::vector<RunEvent> events = std::vector<RunEvent>(512);
    size_t size = 0;
  };

  /// Writer: the batch to fill next, once it has been read; null if the reader has closed the ring.
  Batch* to_fill() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return filled_ - read_ < ring_.size() || closed_; });
    return closed_ ? nullptr : &ring_[filled_ % ring_.size()];
  }
  void filled() {
    const std::lock_guard lock(mutex_);
    ++filled_;
    changed_.notify_all();
  }
  /// Reader: the next batch; null after the last.
  const Batch* to_read() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return filled_ > read_ || closed_; });
    return filled_ > read_ ? &ring_[read_ % ring_.size()] : nullptr;
  }
  void read() {
    const std::lock_guard lock(mutex_);
    ++read_;
    changed_.notify_all();
  }
  /// Either: no batch follows. The reader still gets those that are there.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  std::array<Batch, 4> ring_;
  std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  size_t filled_ = 0;
  size_t read_ = 0;
  bool closed_ = false;
};

/// The second listener's thread.
void follow(EventRing& ring, RunFollower& follower, std::exception_ptr& failure) {
  try {
    while (const EventRing::Batch* batch = ring.to_read()) {
      for (const RunEvent& event : std::span(batch->events).first(batch->size)) follower.take(event);
      ring.read();
    }
    follower.end();
  } catch (...) {
    failure = std::current_exception();
    ring.close();
  }
}

/// Fills the ring up to the end of the run, and tells the first listener of the same events.
void read_all(RunReader& reader, EventRing& ring, RunFollower& follower, const RunListener& first) {
  bool more = true;
  while (EventRing::Batch* batch = more ? ring.to_fill() : nullptr) {
    batch->size = 0;
    while (more && batch->size < batch->events.size()) {
      more = reader.next(batch->events[batch->size]);
      if (more) ++batch->size;
    }
    ring.filled();  // both threads may read it; it is filled anew by this one
    for (size_t i = 0; i < batch->size && !first.done(); ++i) follower.take(batch->events[i]);
  }
  if (!first.done()) follower.end();
}

}  // namespace

void RunFollower::take(const RunEvent& event) {
  if (open_ && is_input(event)) end();
  listener_.before(event, state_);
  state_.take(event);
  listener_.after(event, state_);
  open_ = open_ || std::holds_alternative<RunPlan>(event);
}

void RunFollower::end() {
  if (std::exchange(open_, false)) listener_.planned(state_);
}

void follow_run(RunReader& reader, RunListener& listener) {
  RunFollower follower = follower_of(reader, listener);
  RunEvent event;
  while (!listener.done() && reader.next(event)) follower.take(event);
  follower.end();
}

void follow_run(RunReader& reader, RunListener& first, RunListener& second) {
  RunFollower own = follower_of(reader, first);
  RunFollower other = follower_of(reader, second);
  EventRing ring;
  std::exception_ptr failure;
  {
    std::jthread thread([&] { follow(ring, other, failure); });
    try {
      read_all(reader, ring, own, first);
    } catch (...) {
      ring.close();
      throw;
    }
    ring.close();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace quire::record
