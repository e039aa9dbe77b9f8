#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include <boost/context/detail/fcontext.hpp>

#include "base/rng.h"
#include "tests/device_on_host/memory.h"

namespace quire::test::fibers {

/// What a thread waits for.
enum class Wait : uint8_t { kNothing, kBlock, kWarp, kShuffle, kGather, kEnded };

struct Fiber {
  boost::context::detail::fcontext_t context = nullptr;
  uintptr_t stack = 0;  // its lowest address
  Stamp stamp;
  Wait wait = Wait::kNothing;
  std::source_location where;  // it waits
  uint32_t mask = 0;
  uint32_t bits = 0;  // that it gives to a shuffle, then those it got
  uint32_t from_lane = 0;
  const void* given = nullptr;  // to gather
  size_t given_bytes = 0;
  bool is_early = false;           // it has not waited for earlier kernels, and must
  std::source_location next_from;  // where it let the next kernel begin

  bool owns(uintptr_t address) const { return address - stack < kStackBytes; }
  static constexpr size_t kStackBytes = size_t{64} << 10;
};

/// Why a block cannot go on.
struct Stuck {
  bool at_block_barrier = false;  // otherwise in an operation of a warp
  uint32_t thread = 0;
  std::source_location where;
  std::string text;
};

/// Runs the threads of one block as fibers of the calling thread, each until it waits, in an order drawn from
/// `rng`: warps one after another or interleaved, lanes in any order.
class BlockRun {
 public:
  /// The most threads of a block.
  static constexpr uint32_t kMostThreads = 1024;

  BlockRun();
  BlockRun(const BlockRun&) = delete;
  BlockRun& operator=(const BlockRun&) = delete;

  /// Runs call(closure) in each of `threads` threads to its end, unless stop() is called or they get stuck.
  std::optional<Stuck> run(uint32_t threads, bool is_early, const Stamp& first, SplitMix64& rng,
                           void (*call)(const void*), const void* closure);
  /// Once they have ended.
  const std::vector<Fiber>& threads() const { return fibers_; }

  /// That the first thread of the block has passed.
  uint32_t barriers() const { return fibers_[0].stamp.barriers; }

  /// The thread that runs now; null outside of kernels.
  static thread_local Fiber* running;
  /// The running thread waits.
  void wait(Wait wait, uint32_t mask, const std::source_location& where);
  /// What the lanes of the running thread's warp gave when they last waited for it together.
  const void* gathered() const { return gathered_[running->stamp.thread / kLanes].data(); }
  /// From the running thread: ends the block where it is. Never returns.
  void stop();

 private:
  static void enter(boost::context::detail::transfer_t from);
  void resume(Fiber& fiber);
  bool run_warp(uint32_t warp, SplitMix64& rng);
  bool release_warp(uint32_t warp);
  bool release_lanes(uint32_t warp, uint32_t leader);
  bool release_block();
  Stuck stuck() const;
  std::string missing_lanes(const Fiber& fiber) const;

  std::byte* stacks_;
  std::vector<Fiber> fibers_;
  std::vector<std::vector<std::byte>> gathered_;  // by warp
  boost::context::detail::fcontext_t scheduler_ = nullptr;
  void (*call_)(const void*) = nullptr;
  const void* closure_ = nullptr;
  bool stopped_ = false;
  std::optional<Stuck> bad_shuffle_;
};

}  // namespace quire::test::fibers
