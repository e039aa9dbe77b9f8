#pragma once

#include <memory>

namespace quire {

/// While this object exists, a separate thread writes the lines of base/log.h, so that no caller waits for
/// the reader of standard error. Up to 4,096 lines are queued; beyond that the oldest are dropped, and once
/// standard error is read again a line reports how many were dropped. At most one object may exist at a time.
/// Construct it before the threads that log, and destroy it after them.
class LogThread {
 public:
  LogThread();
  /// Writes the queued lines for at most one second; lines that are not read by then are lost.
  ~LogThread();
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
