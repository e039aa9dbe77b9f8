#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/machine_limits.h"

namespace quire {
namespace {

constexpr size_t kCacheLine = 64;
constexpr std::chrono::microseconds kSpin{60};  // longer than the gaps between the ops of one step
constexpr int kPausesBetweenLooks = 16;

void cpu_pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

/// Spins until `done()` or for `limit`; says whether it was done.
template <class Done>
bool spin_until(Done done, std::chrono::microseconds limit) {
  if (done()) return true;
  if (limit.count() == 0) return false;
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < kPausesBetweenLooks; ++i) {
      cpu_pause();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// The gate is one word: how many workers are inside the current job, and whether more may enter. A worker
// that wakes late finds the gate closed and stays outside, so a loop waits only for those that took a piece.
//   bits 32..63: number of the job   bit 31: open   bit 30: the caller sleeps   bits 0..29: workers inside
constexpr uint64_t kOpen = uint64_t{1} << 31;
constexpr uint64_t kCallerSleeps = uint64_t{1} << 30;
constexpr uint64_t kInside = kCallerSleeps - 1;
constexpr uint64_t kJobUnit = uint64_t{1} << 32;

}  // namespace

struct ThreadPool::State {
  struct Job {
    Call call = nullptr;
    void* context = nullptr;
    size_t count = 0;
    size_t grain = 1;
    size_t pieces = 0;
    size_t shares = 1;

    size_t first_piece(size_t share) const { return share * pieces / shares; }
  };

  alignas(kCacheLine) std::atomic<uint64_t> gate{0};
  // Of each share, the first piece that is not taken. Those of some threads lie side by side, for pieces are
  // long, and whoever looks for what others have left soon sees that there is nothing.
  static constexpr size_t kSideBySide = kCacheLine / sizeof(std::atomic<size_t>);
  struct alignas(kCacheLine) Counters {
    std::atomic<size_t> of[kSideBySide];
  };
  std::vector<Counters> counters;
  alignas(kCacheLine) std::atomic<uint32_t> sleepers{0};
  std::atomic<bool> stop{false};
  Job job;  // written by the caller while the gate is closed and no worker is inside
  std::chrono::microseconds spin{0};
  std::mutex mutex;
  std::condition_variable work_or_stop;
  std::condition_variable all_out;
  std::vector<std::thread> workers;

  std::atomic<size_t>& next(size_t share) { return counters[share / kSideBySide].of[share % kSideBySide]; }

  /// The thread's share, then what is left of the others'.
  void take_pieces(uint32_t thread) {
    for (size_t i = 0; i < job.shares; ++i) {
      const size_t share = (thread + i) % job.shares;
      const size_t end = job.first_piece(share + 1);
      while (next(share).load(std::memory_order_relaxed) < end) {
        const size_t piece = next(share).fetch_add(1, std::memory_order_relaxed);
        if (piece >= end) break;
        const size_t begin = piece * job.grain;
        job.call(job.context, begin, begin + std::min(job.grain, job.count - begin), thread);
      }
    }
  }

  bool try_enter(uint64_t seen_gate) {
    while ((seen_gate & kOpen) != 0) {
      if (gate.compare_exchange_weak(seen_gate, seen_gate + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }

  void leave() {
    const uint64_t before = gate.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & kCallerSleeps) != 0 && (before & kInside) == 1) {
      const std::lock_guard lock(mutex);
      all_out.notify_one();
    }
  }

  void work(uint32_t thread) {
    uint64_t last_job = 0;
    const auto something_new = [&] {
      return gate.load() / kJobUnit != last_job || stop.load(std::memory_order_relaxed);
    };
    for (;;) {
      if (!spin_until(something_new, spin)) {
        std::unique_lock lock(mutex);
        sleepers.fetch_add(1);
        work_or_stop.wait(lock, something_new);
        sleepers.fetch_sub(1);
      }
      if (stop.load(std::memory_order_relaxed)) return;
      const uint64_t seen = gate.load();
      last_job = seen / kJobUnit;
      if (try_enter(seen)) {
        // The job may have moved on between the look and the entry; take_pieces does whichever is current.
        take_pieces(thread);
        leave();
      }
    }
  }

  void wait_until_all_are_out() {
    const auto empty = [&] { return (gate.load(std::memory_order_acquire) & kInside) == 0; };
    if (spin_until(empty, spin)) return;
    std::unique_lock lock(mutex);
    gate.fetch_or(kCallerSleeps);
    all_out.wait(lock, empty);
  }
};

ThreadPool::ThreadPool(uint32_t num_threads) : state_(std::make_unique<State>()) {
  state_->counters = std::vector<State::Counters>(num_threads / State::kSideBySide + 1);
  // With more threads than processors a spinning thread keeps the one it waits for from running.
  static const uint32_t cpus = usable_cpus().threads;
  if (num_threads <= cpus) state_->spin = kSpin;
  for (uint32_t thread = 1; thread < num_threads; ++thread) {
    state_->workers.emplace_back([state = state_.get(), thread] { state->work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop.store(true);
  }
  state_->work_or_stop.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

uint32_t ThreadPool::num_threads() const { return static_cast<uint32_t>(state_->workers.size()) + 1; }

void ThreadPool::run(size_t count, size_t grain, size_t shares, Call call, void* context) {
  if (count == 0) return;
  grain = std::max<size_t>(grain, 1);
  State& state = *state_;
  if (state.workers.empty() || count <= grain) {
    call(context, 0, count, 0);
    return;
  }
  state.job = {call, context, count, grain, (count + grain - 1) / grain, shares};
  for (size_t share = 0; share < shares; ++share) {
    state.next(share).store(state.job.first_piece(share), std::memory_order_relaxed);
  }
  const uint64_t number = state.gate.load(std::memory_order_relaxed) / kJobUnit + 1;
  state.gate.store((number * kJobUnit) | kOpen);
  // Sequentially consistent against the sleeper's increment and its look at the gate: one sees the other.
  if (state.sleepers.load() != 0) {
    {
      const std::lock_guard lock(state.mutex);
    }
    const size_t helpers = (count - 1) / grain;  // pieces besides the one the caller starts with
    if (helpers >= state.workers.size()) {
      state.work_or_stop.notify_all();
    } else {
      for (size_t i = 0; i < helpers; ++i) state.work_or_stop.notify_one();
    }
  }
  state.take_pieces(0);
  state.gate.fetch_and(~kOpen);
  state.wait_until_all_are_out();
}

}  // namespace quire
