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
  /// smaller; a pool of one thread takes all as one). Each thread has an equal share of pieces in a row, so
  /// that memory is read in a row, too; whoever is done with it takes what the others have left. Returns when
  /// all pieces are done; then everything that they wrote is visible. `thread` in [0, num_threads). The body
  /// must not throw and must not use the pool.
  template <class Body>
  void parallel_for(size_t count, size_t grain, Body&& body) {
    run(
        count, grain,
        [](void* context, size_t begin, size_t end, uint32_t thread) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(begin, end, thread);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* context, size_t begin, size_t end, uint32_t thread);
  void run(size_t count, size_t grain, Call call, void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
