#include "engine/live_feed.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/describe.h"
#include "base/log.h"
#include "engine/engine.h"
#include "record/live_run.h"
#include "record/run_tap.h"

namespace quire::engine {
namespace {

constexpr std::chrono::milliseconds kTick{100};
constexpr Nanos kSilence = 1'000'000'000;  // after which a reader is told the time

}  // namespace

std::string LiveFeed::Reader::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(told_, {});
}

LiveFeed::LiveFeed(Engine& engine, const Clock& clock)
    : engine_(engine), clock_(clock), thread_([this] { run(); }) {}

LiveFeed::~LiveFeed() {
  close();
  thread_.join();
}

std::shared_ptr<LiveFeed::Reader> LiveFeed::join(std::optional<uint64_t> tenant) {
  auto reader = std::make_shared<Reader>(tenant);
  const std::lock_guard lock(mutex_);
  const auto here = std::ranges::count_if(readers_, [](const auto& other) { return !other->left_; });
  if (closed_ || static_cast<size_t>(here) >= kMostReaders) return nullptr;
  readers_.push_back(reader);
  wake_.notify_one();
  return reader;
}

void LiveFeed::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  wake_.notify_one();
}

void LiveFeed::run() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    Readers left;
    std::erase_if(readers_, [&](const std::shared_ptr<Reader>& reader) {
      if (reader->left_) left.push_back(reader);
      return reader->left_.load();
    });
    const Readers readers = readers_;
    lock.unlock();
    for (const auto& reader : left) {
      if (run_ != nullptr) run_->remove(reader->view_);
    }
    try {
      if (readers.empty()) {
        stop_watching();
      } else {
        follow(readers);
      }
    } catch (...) {
      log_warning(fmt::format("the live view begins anew: {}", describe_current_exception()));
      run_.reset();
      begin_anew();
    }
    lock.lock();
    if (readers.empty() && readers_.empty()) {
      wake_.wait(lock, [this] { return closed_ || !readers_.empty(); });
    } else {
      wake_.wait_for(lock, kTick, [this] { return closed_.load(); });
    }
  }
  lock.unlock();
  engine_.watch(nullptr);
}

void LiveFeed::stop_watching() {
  if (tap_ != nullptr) engine_.watch(nullptr);
  tap_.reset();
  run_.reset();
  asked_ = false;
}

void LiveFeed::begin_anew() {
  if (tap_ == nullptr) tap_ = std::make_shared<record::RunTap>();
  engine_.watch(tap_);
  asked_ = true;
}

void LiveFeed::follow(const Readers& readers) {
  if (tap_ == nullptr) begin_anew();
  record::RunTap::Batch batch = tap_->take();
  if (batch.start) {
    run_ = std::make_unique<record::LiveRun>(std::move(*batch.start));
    for (const auto& reader : readers) reader->joined_ = false;
    asked_ = false;
  }
  if (run_ != nullptr) run_->take(batch);
  if ((batch.lost || (run_ != nullptr && run_->is_full())) && !asked_) begin_anew();
  if (run_ == nullptr) return;
  const Nanos now = clock_.now();
  for (const auto& reader : readers) {
    if (!std::exchange(reader->joined_, true)) run_->add(reader->view_);
    tell(*reader, now);
  }
}

void LiveFeed::tell(Reader& reader, Nanos now) {
  const std::lock_guard lock(reader.mutex_);
  if (!reader.told_.empty()) {
    if (reader.view_.bytes() > kMostWaiting) reader.view_.begin(*run_);
    return;
  }
  reader.view_.take(*run_, now, now - reader.last_ >= kSilence, reader.told_);
  if (!reader.told_.empty()) reader.last_ = now;
}

}  // namespace quire::engine
