#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include <gtest/gtest.h>

#include "engine/engine.h"

namespace quire::test {

/// The last news of each request; there may be none after it. Thread-safe.
class Ends {
 public:
  void put(uint64_t name, engine::RequestOutput output) {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(ends_.contains(name)) << "news after the end of request " << name;
    if (output.done) ends_[name] = std::move(output);
    ended_.notify_all();
  }
  engine::OutputSink sink(uint64_t name) {
    return [this, name](engine::RequestOutput output) { put(name, std::move(output)); };
  }
  engine::RequestOutput wait(uint64_t name) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(ended_.wait_for(lock, std::chrono::seconds(20), [&] { return ends_.contains(name); }))
        << "request " << name;
    return ends_[name];
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::map<uint64_t, engine::RequestOutput> ends_;
};

}  // namespace quire::test
