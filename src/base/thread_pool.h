#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace quire {

/// A fixed set of worker threads for data-parallel loops; the calling thread is one of them. One caller at a
/// time. After work, workers spin briefly and then sleep.
class ThreadPool {
 public:
  /// `num_threads` >= 1, including the caller.
  explicit ThreadPool(uint32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t num_threads() const;

  /// Calls body(begin, end, thread) until [0, count) is covered, in pieces of `grain` (the last may be
  /// smaller; one thread takes all as one), which threads take in ascending order as they become free.
  /// Returns when all pieces are done; then everything that they wrote is visible. `thread` in [0,
  /// num_threads). The body must not throw and must not use the pool.
  template <class Body>
  void parallel_for(size_t count, size_t grain, Body&& body) {
    run(count, grain, 1, call_of<Body>, address_of(body));
  }

  /// The same, but each thread first takes its share, which is consecutive pieces, and then what others have
  /// left of theirs: for a body whose memory is read faster in one stream.
  template <class Body>
  void parallel_shares(size_t count, size_t grain, Body&& body) {
    run(count, grain, num_threads(), call_of<Body>, address_of(body));
  }

 private:
  using Call = void (*)(void* context, size_t begin, size_t end, uint32_t thread);
  template <class Body>
  static void call_of(void* context, size_t begin, size_t end, uint32_t thread) {
    (*static_cast<std::remove_reference_t<Body>*>(context))(begin, end, thread);
  }
  template <class Body>
  static void* address_of(Body& body) {
    return const_cast<void*>(static_cast<const void*>(&body));
  }
  void run(size_t count, size_t grain, size_t shares, Call call, void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
