#include "tests/device_on_host/streams.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "base/describe.h"

namespace quire::test::fibers {
namespace {

Nanos now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

backend::cuda::Stream Streams::create() {
  queues_.push_back(std::make_unique<Queue>());
  return reinterpret_cast<backend::cuda::Stream>(queues_.size());
}

void Streams::destroy(backend::cuda::Stream stream) {
  while (!queue(stream).empty() && run_one()) continue;
}

void Streams::add(backend::cuda::Stream stream, std::function<void()> work) {
  if (stream == nullptr) {
    work();
    return;
  }
  push(stream, {.work = std::move(work)});
  while (rng_.below(2) == 0 && run_one()) continue;
}

uint64_t Streams::record(backend::cuda::Stream stream) {
  places_.emplace_back();
  const uint64_t place = places_.size() - 1;
  if (stream == nullptr) {
    places_[place] = {true, now()};
  } else {
    push(stream, {.reaches = place});
  }
  return place;
}

void Streams::hold(backend::cuda::Stream stream, uint64_t place) { push(stream, {.waits_for = place}); }

void Streams::push(backend::cuda::Stream stream, Item item) {
  item.number = ++given_;
  queue(stream).push_back(std::move(item));
}

void Streams::run_to(uint64_t place) {
  while (!places_[place].is_reached) {
    if (!run_one()) throw std::logic_error("streams that wait for each other");
  }
}

void Streams::run_all() {
  while (run_one()) continue;
}

/// The first work of one of the streams; false if none has any that need not wait.
bool Streams::run_one() {
  std::vector<Queue*> ready;
  uint64_t oldest = UINT64_MAX;
  for (const auto& queue : queues_) {
    if (queue->empty()) continue;
    oldest = std::min(oldest, queue->front().number);
    if (places_[queue->front().waits_for].is_reached) ready.push_back(queue.get());
  }
  if (ready.empty()) return false;
  Queue& chosen = *ready[rng_.below(ready.size())];
  Item item = std::move(chosen.front());
  chosen.pop_front();
  if (item.number != oldest && item.work) ++overtakes_;
  run(std::move(item));
  return true;
}

void Streams::run(Item item) {
  if (item.reaches != 0) places_[item.reaches] = {true, now()};
  if (!item.work || !failure_.empty()) return;
  try {
    if (++done_ == fails_at_) throw std::runtime_error("an error that the test wants");
    item.work();
  } catch (...) {
    failure_ = describe_current_exception();
  }
}

}  // namespace quire::test::fibers
