#pragma once

#include <memory>

namespace quire {

/// While it lives, a thread of its own writes the lines of base/log.h, so that no caller waits for who reads
/// standard error. Up to 4,096 lines wait; then the oldest are dropped, and once lines are read again, one
/// says how many were. One at a time. Construct it before the threads that log, destroy it after them.
class LogThread {
 public:
  LogThread();
  /// Writes what waits, for one second at most; what is not read by then is lost.
  ~LogThread();
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
