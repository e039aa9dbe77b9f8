#include "tests/device_on_host/async_copies.h"

#include <algorithm>
#include <cstring>

namespace quire::test::fibers {

void AsyncCopies::enter_block(const Region& shared, uint32_t threads) {
  shared_ = shared.begin();
  if (count_ != 0 || under_way_.size() != shared.size()) under_way_.assign(shared.size(), 0);
  count_ = 0;
  threads_.assign(threads, {});
}

void AsyncCopies::begin(AsyncCopy copy, SplitMix64& rng) {
  OfThread& own = threads_[copy.thread];
  copy.group = own.committed;
  mark(copy, true);
  ++count_;
  own.copies.push_back(copy);
  land_some(own, rng);
}

void AsyncCopies::commit(uint16_t thread, SplitMix64& rng) {
  ++threads_[thread].committed;
  land_some(threads_[thread], rng);
}

std::vector<AsyncCopy> AsyncCopies::wait(uint16_t thread, uint32_t but) {
  OfThread& own = threads_[thread];
  const auto is_waited_for = [&](const AsyncCopy& copy) { return copy.group + but < own.committed; };
  const auto end = std::find_if_not(own.copies.begin(), own.copies.end(), is_waited_for);
  std::vector<AsyncCopy> ended(own.copies.begin(), end);
  own.copies.erase(own.copies.begin(), end);
  for (AsyncCopy& copy : ended) {
    land(copy);
    mark(copy, false);
    --count_;
  }
  return ended;
}

bool AsyncCopies::are_under_way(uintptr_t address, size_t bytes) const {
  return count_ != 0 && std::memchr(under_way_.data() + (address - shared_), 1, bytes) != nullptr;
}

std::vector<AsyncCopy> AsyncCopies::rest() const {
  std::vector<AsyncCopy> all;
  for (const OfThread& own : threads_) all.insert(all.end(), own.copies.begin(), own.copies.end());
  return all;
}

void AsyncCopies::land(AsyncCopy& copy) {
  if (!copy.landed) std::memcpy(copy.to, copy.from, copy.bytes);
  copy.landed = true;
}

void AsyncCopies::land_some(OfThread& own, SplitMix64& rng) {
  for (AsyncCopy& copy : own.copies) {
    if (!copy.landed && rng.below(4) == 0) land(copy);
  }
}

void AsyncCopies::mark(const AsyncCopy& copy, bool under_way) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(copy.to) - shared_;
  std::fill_n(under_way_.begin() + static_cast<ptrdiff_t>(first), copy.bytes, under_way);
}

}  // namespace quire::test::fibers
