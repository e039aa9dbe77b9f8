#include "tests/device_on_host/streams.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "base/describe.h"

namespace quire::test::fibers {
namespace {

Nanos now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// 0: the default stream.
size_t index_of(backend::cuda::Stream stream) { return reinterpret_cast<uintptr_t>(stream); }

}  // namespace

backend::cuda::Stream Streams::create() {
  queues_.push_back(std::make_unique<Queue>());
  return reinterpret_cast<backend::cuda::Stream>(queues_.size());
}

void Streams::destroy(backend::cuda::Stream stream) {
  while (!queue(stream).empty() && run_one()) continue;
  note_waited({index_of(stream), given_});
}

void Streams::add(backend::cuda::Stream stream, std::function<void()> work) {
  if (stream == nullptr) {
    work_on({0, ++given_}, work);
    return;
  }
  if (stream == recording_) {
    recorded_.push_back(std::move(work));
    return;
  }
  push(stream, {.work = std::move(work)});
  while (rng_.below(2) == 0 && run_one()) continue;
}

void Streams::begin_recording(backend::cuda::Stream stream) {
  refuse_if_recording("to record");
  if (stream == nullptr) throw std::logic_error("the default stream cannot be recorded");
  recording_ = stream;
}

Streams::Recorded Streams::end_recording() {
  recording_ = nullptr;
  return std::exchange(recorded_, {});
}

void Streams::add(backend::cuda::Stream stream, const Recorded& recorded) {
  ++repeats_;
  for (const std::function<void()>& work : recorded) add(stream, work);
}

void Streams::refuse_if_recording(const char* what) const {
  if (is_recording()) throw std::logic_error(fmt::format("{} while a stream is recorded", what));
}

uint64_t Streams::record(backend::cuda::Stream stream) {
  refuse_if_recording("an event");
  places_.push_back({.behind = {index_of(stream), given_}});
  const uint64_t place = places_.size() - 1;
  if (stream == nullptr) {
    places_[place].is_reached = true;
    places_[place].when = now();
  } else {
    push(stream, {.reaches = place});
  }
  return place;
}

void Streams::hold(backend::cuda::Stream stream, uint64_t place) {
  refuse_if_recording("an event");
  push(stream, {.waits_for = place});
}

void Streams::push(backend::cuda::Stream stream, Item item) {
  item.number = ++given_;
  queue(stream).push_back(std::move(item));
}

void Streams::run_to(uint64_t place) {
  refuse_if_recording("to wait");
  while (!places_[place].is_reached) {
    if (!run_one()) throw std::logic_error("streams that wait for each other");
  }
  note_waited(places_[place].behind);
}

void Streams::run_all() {
  while (run_one()) continue;
  for (size_t stream = 0; stream <= queues_.size(); ++stream) note_waited({stream, given_});
}

void Streams::note_waited(const Work& last) {
  if (waited_.size() <= last.stream) waited_.resize(last.stream + 1);
  waited_[last.stream] = std::max(waited_[last.stream], last.number);
}

/// The first work of one of the streams; false if none has any that need not wait.
bool Streams::run_one() {
  std::vector<size_t> ready;
  uint64_t oldest = UINT64_MAX;
  for (size_t i = 0; i < queues_.size(); ++i) {
    const Queue& queue = *queues_[i];
    if (queue.empty()) continue;
    oldest = std::min(oldest, queue.front().number);
    if (places_[queue.front().waits_for].is_reached) ready.push_back(i);
  }
  if (ready.empty()) return false;
  const size_t index = ready[rng_.below(ready.size())];
  Queue& chosen = *queues_[index];
  Item item = std::move(chosen.front());
  chosen.pop_front();
  if (item.number != oldest && item.work) ++overtakes_;
  run(index + 1, std::move(item));
  return true;
}

void Streams::run(size_t stream, Item item) {
  if (item.reaches != 0) {
    places_[item.reaches].is_reached = true;
    places_[item.reaches].when = now();
  }
  if (!item.work || !failure_.empty()) return;
  try {
    if (++done_ == fails_at_) throw std::runtime_error("an error that the test wants");
    work_on({stream, item.number}, item.work);
  } catch (...) {
    failure_ = describe_current_exception();
  }
}

void Streams::work_on(const Work& which, const std::function<void()>& work) {
  struct Over {
    Work& current;
    ~Over() { current = {}; }
  };
  current_ = which;
  const Over over{current_};
  work();
}

}  // namespace quire::test::fibers
