#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/stream.h"
#include "base/ids.h"
#include "base/rng.h"

namespace quire::test::fibers {

/// The streams of a Device. Their work waits until the host waits for it, or until the seed has some of it
/// done while more is given. Streams that nothing orders advance in an order that the seed chooses, so that
/// work which relies on another order, or on memory that the host has reused, gives other results in some of
/// them. Work of the default stream (null) is done at once, and what it throws is the caller's.
class Streams {
 public:
  /// A piece of work that a stream is given: which one of all, from 1 on.
  struct Work {
    size_t stream = 0;  // 0: the default stream
    uint64_t number = 0;
  };
  explicit Streams(uint64_t seed) : rng_(seed) {}

  backend::cuda::Stream create();
  /// Does its work first.
  void destroy(backend::cuda::Stream stream);
  /// If work throws, all later work is left out, as on a device that has failed.
  void add(backend::cuda::Stream stream, std::function<void()> work);

  using Recorded = std::vector<std::function<void()>>;
  /// What the stream is given from here on is kept for end_recording() and not done. Until then no place may
  /// be recorded in it, nor be waited for: both throw logic_error. One stream at a time.
  void begin_recording(backend::cuda::Stream stream);
  Recorded end_recording();
  bool is_recording() const { return recording_ != nullptr; }
  /// Gives the stream all that was recorded, and counts it.
  void add(backend::cuda::Stream stream, const Recorded& recorded);
  uint64_t repeats() const { return repeats_; }

  /// A new place behind all work that the stream has been given. Places are numbered from 1 on; 0 has always
  /// been reached.
  uint64_t record(backend::cuda::Stream stream);
  /// The stream's later work waits for the place.
  void hold(backend::cuda::Stream stream, uint64_t place);
  void run_to(uint64_t place);
  void run_all(backend::cuda::Stream stream) { run_to(record(stream)); }
  void run_all();
  /// The work that is being done; number 0 if there is none.
  const Work& current() const { return current_; }
  /// By stream, the last work that the host has waited for; streams behind the end it never waited for. What
  /// these waited for of other streams does not count.
  const std::vector<uint64_t>& waited() const { return waited_; }
  /// When the place was reached.
  Nanos reached(uint64_t place) const { return places_[place].when; }

  /// The work that is `count` pieces from now fails.
  void fail_after(uint64_t count) { fails_at_ = done_ + count; }
  /// What the first piece of work that failed said; empty if none did.
  const std::string& failure() const { return failure_; }
  /// Pieces of work that were done before older ones of other streams.
  uint64_t overtakes() const { return overtakes_; }

 private:
  struct Item {
    uint64_t number = 0;
    std::function<void()> work;
    uint64_t waits_for = 0;
    uint64_t reaches = 0;
  };
  struct Place {
    bool is_reached = false;
    Nanos when = 0;
    Work behind;
  };
  using Queue = std::deque<Item>;

  Queue& queue(backend::cuda::Stream stream) { return *queues_[reinterpret_cast<uintptr_t>(stream) - 1]; }
  void push(backend::cuda::Stream stream, Item item);
  bool run_one();
  void run(size_t stream, Item item);
  void work_on(const Work& which, const std::function<void()>& work);
  void note_waited(const Work& last);

  void refuse_if_recording(const char* what) const;

  SplitMix64 rng_;
  backend::cuda::Stream recording_ = nullptr;  // none
  Recorded recorded_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::vector<Place> places_ = {{true, 0, {}}};
  std::vector<uint64_t> waited_;
  Work current_;
  uint64_t given_ = 0;
  uint64_t done_ = 0;
  uint64_t fails_at_ = UINT64_MAX;
  uint64_t overtakes_ = 0;
  uint64_t repeats_ = 0;
  std::string failure_;
};

}  // namespace quire::test::fibers
