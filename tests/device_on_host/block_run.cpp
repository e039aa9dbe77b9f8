#include "tests/device_on_host/block_run.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <sys/mman.h>

#include <fmt/format.h>

namespace quire::test::fibers {
namespace {

namespace fcontext = boost::context::detail;

constexpr size_t kPage = 4096;

template <class T>
void shuffle(std::vector<T>& values, SplitMix64& rng) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[rng.below(i)]);
}

std::string file_and_line(const std::source_location& where) {
  const std::string file = where.file_name();
  return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), where.line());
}

bool is_of_warp(Wait wait) { return wait == Wait::kWarp || wait == Wait::kShuffle || wait == Wait::kGather; }

std::string what(const Fiber& fiber) {
  if (fiber.wait == Wait::kEnded) return "has ended";
  if (fiber.wait == Wait::kBlock)
    return fmt::format("waits at the barrier of {}", file_and_line(fiber.where));
  return fmt::format("waits at {} with mask {:#010x}", file_and_line(fiber.where), fiber.mask);
}

/// The stacks of all threads, kept until the program ends: one block runs at a time.
std::byte* shared_stacks() {
  static std::byte* const kStacks = [] {
    constexpr size_t kCount = BlockRun::kMostThreads;
    void* memory = mmap(nullptr, kCount * Fiber::kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    auto* stacks = static_cast<std::byte*>(memory);
    // A stack that overflows ends the program instead of writing to its neighbour.
    for (size_t i = 0; i < kCount; ++i) mprotect(stacks + i * Fiber::kStackBytes, kPage, PROT_NONE);
    return stacks;
  }();
  return kStacks;
}

}  // namespace

thread_local Fiber* BlockRun::running = nullptr;

BlockRun::BlockRun() : stacks_(shared_stacks()) {}

void BlockRun::enter(fcontext::transfer_t from) {
  auto* self = static_cast<BlockRun*>(from.data);
  self->scheduler_ = from.fctx;
  self->call_(self->closure_);
  self->wait(Wait::kEnded, 0, {});
}

std::optional<Stuck> BlockRun::run(uint32_t threads, bool is_early, const Stamp& first, SplitMix64& rng,
                                   void (*call)(const void*), const void* closure) {
  call_ = call;
  closure_ = closure;
  stopped_ = false;
  bad_shuffle_.reset();
  fibers_.assign(threads, {});
  gathered_.resize((threads + kLanes - 1) / kLanes);
  for (uint32_t i = 0; i < threads; ++i) {
    Fiber& fiber = fibers_[i];
    std::byte* stack = stacks_ + i * Fiber::kStackBytes;
    fiber.stack = reinterpret_cast<uintptr_t>(stack);
    fiber.stamp = first;
    fiber.stamp.thread = static_cast<uint16_t>(i);
    fiber.is_early = is_early;
    fiber.context =
        fcontext::make_fcontext(stack + Fiber::kStackBytes, Fiber::kStackBytes - kPage, &BlockRun::enter);
  }
  std::vector<uint32_t> warps((threads + kLanes - 1) / kLanes);
  std::iota(warps.begin(), warps.end(), 0);
  for (;;) {
    shuffle(warps, rng);
    bool moved = false;
    for (const uint32_t warp : warps) {
      // One warp may run far ahead of the others.
      while (run_warp(warp, rng)) {
        moved = true;
        if (rng.below(4) == 0) break;
      }
      if (stopped_) return bad_shuffle_;
    }
    if (moved) continue;
    const bool over = std::all_of(fibers_.begin(), fibers_.end(),
                                  [](const Fiber& fiber) { return fiber.wait == Wait::kEnded; });
    if (over) return std::nullopt;
    if (!release_block()) return stuck();
  }
}

/// Whether a lane of the warp could run.
bool BlockRun::run_warp(uint32_t warp, SplitMix64& rng) {
  std::vector<uint32_t> ready;
  for (uint32_t i = warp * kLanes; i < std::min<size_t>((warp + 1) * kLanes, fibers_.size()); ++i) {
    if (fibers_[i].wait == Wait::kNothing) ready.push_back(i);
  }
  shuffle(ready, rng);
  for (const uint32_t i : ready) {
    resume(fibers_[i]);
    if (stopped_) return false;
  }
  return release_warp(warp) || !ready.empty();
}

void BlockRun::resume(Fiber& fiber) {
  running = &fiber;
  const fcontext::transfer_t back = fcontext::jump_fcontext(fiber.context, this);
  running = nullptr;
  fiber.context = back.fctx;
}

void BlockRun::wait(Wait wait, uint32_t mask, const std::source_location& where) {
  Fiber& fiber = *running;
  fiber.wait = wait;
  fiber.mask = mask;
  fiber.where = where;
  scheduler_ = fcontext::jump_fcontext(scheduler_, nullptr).fctx;
}

void BlockRun::stop() {
  stopped_ = true;
  for (;;) fcontext::jump_fcontext(scheduler_, nullptr);
}

bool BlockRun::release_warp(uint32_t warp) {
  bool any = false;
  for (uint32_t i = warp * kLanes; i < std::min<size_t>((warp + 1) * kLanes, fibers_.size()); ++i) {
    if (is_of_warp(fibers_[i].wait)) any |= release_lanes(warp, i);
  }
  return any;
}

/// Lets the lanes in the mask of `leader` go on if all of them are at the same operation.
bool BlockRun::release_lanes(uint32_t warp, uint32_t leader) {
  const Fiber& first = fibers_[leader];
  const uint32_t base = warp * kLanes;
  std::vector<Fiber*> lanes;
  uint32_t alive = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const bool wanted = (first.mask >> lane & 1) != 0;
    if (base + lane >= fibers_.size()) {
      if (wanted) return false;
      continue;
    }
    Fiber& fiber = fibers_[base + lane];
    alive |= uint32_t{fiber.wait != Wait::kEnded} << lane;
    if (!wanted) continue;
    const bool same = fiber.wait == first.wait && fiber.mask == first.mask &&
                      fiber.where.line() == first.where.line() &&
                      fiber.where.file_name() == first.where.file_name();
    if (!same) return false;
    lanes.push_back(&fiber);
  }
  if ((first.mask >> leader % kLanes & 1) == 0) return false;
  std::vector<uint32_t> given(kLanes);
  for (const Fiber* fiber : lanes) given[fiber->stamp.thread % kLanes] = fiber->bits;
  // Nobody gives anew before all of them have come back for this.
  std::vector<std::byte>& gathered = gathered_[warp];
  if (first.wait == Wait::kGather) gathered.resize(kLanes * first.given_bytes);
  const bool orders_memory = first.wait == Wait::kWarp && (alive & ~first.mask) == 0;
  for (Fiber* fiber : lanes) {
    if (fiber->wait == Wait::kShuffle) {
      if (fiber->from_lane >= kLanes || (fiber->mask >> fiber->from_lane & 1) == 0) {
        bad_shuffle_ = {false, fiber->stamp.thread, fiber->where,
                        fmt::format("takes the value of lane {}, which is not in mask {:#010x}",
                                    fiber->from_lane, fiber->mask)};
        stopped_ = true;
        return false;
      }
      fiber->bits = given[fiber->from_lane];
    }
    if (fiber->wait == Wait::kGather) {
      std::memcpy(gathered.data() + fiber->stamp.thread % kLanes * fiber->given_bytes, fiber->given,
                  fiber->given_bytes);
    }
    if (orders_memory) ++fiber->stamp.warp_syncs;
    fiber->wait = Wait::kNothing;
  }
  return true;
}

/// Lets all threads go on if all wait at one barrier.
bool BlockRun::release_block() {
  const auto same = [&](const Fiber& fiber) {
    return fiber.wait == Wait::kBlock && fiber.where.line() == fibers_[0].where.line() &&
           fiber.where.file_name() == fibers_[0].where.file_name();
  };
  if (!std::all_of(fibers_.begin(), fibers_.end(), same)) return false;
  for (Fiber& fiber : fibers_) {
    fiber.wait = Wait::kNothing;
    ++fiber.stamp.barriers;
  }
  return true;
}

Stuck BlockRun::stuck() const {
  for (const Fiber& fiber : fibers_) {
    if (!is_of_warp(fiber.wait)) continue;
    return {false, fiber.stamp.thread, fiber.where,
            fmt::format("waits with mask {:#010x}, but {}", fiber.mask, missing_lanes(fiber))};
  }
  const auto waiting = std::find_if(fibers_.begin(), fibers_.end(),
                                    [](const Fiber& fiber) { return fiber.wait == Wait::kBlock; });
  const auto other = std::find_if(fibers_.begin(), fibers_.end(), [&](const Fiber& fiber) {
    return fiber.wait != Wait::kBlock || fiber.where.line() != waiting->where.line();
  });
  return {true, waiting->stamp.thread, waiting->where,
          fmt::format("waits at a barrier, but thread {} {}", other->stamp.thread, what(*other))};
}

std::string BlockRun::missing_lanes(const Fiber& fiber) const {
  const uint32_t own_lane = fiber.stamp.thread % kLanes;
  if ((fiber.mask >> own_lane & 1) == 0) return fmt::format("its own lane {} is not in it", own_lane);
  const uint32_t base = fiber.stamp.thread - own_lane;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if ((fiber.mask >> lane & 1) == 0) continue;
    if (base + lane >= fibers_.size()) return fmt::format("the block has no lane {}", lane);
    const Fiber& other = fibers_[base + lane];
    const bool same =
        other.wait == fiber.wait && other.mask == fiber.mask && other.where.line() == fiber.where.line();
    if (!same) return fmt::format("lane {} {}", lane, what(other));
  }
  return "its lanes are at one operation of different files";
}

}  // namespace quire::test::fibers
