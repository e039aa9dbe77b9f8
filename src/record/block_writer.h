#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/private_file.h"

namespace quire::record {

/// Writes records to a file as blocks (run_format.h), in a thread of its own: who gives them waits for the
/// disk only where 16 MiB of them wait already. What was given is in the file, readable by others, half a
/// second later. One thread gives.
class BlockWriter {
 public:
  /// `warning` is said once if the file cannot be written any more. Throws Error if no thread can be started.
  BlockWriter(PrivateFile file, std::string warning);
  ~BlockWriter();  // what was given is written
  BlockWriter(const BlockWriter&) = delete;

  /// First: the file's first line. May throw std::bad_alloc.
  void begin(std::string line);
  /// Whole records, with their entries of the index; `steps` were planned up to their end. May throw
  /// std::bad_alloc; then they are not taken.
  void give(std::string_view records, std::string_view index, uint64_t steps);
  /// Returns when all that was given is written, or nothing more can be.
  void flush() noexcept;
  /// Nothing more is written.
  void cut_off() noexcept;
  bool failed() const { return failed_; }

 private:
  static constexpr size_t kWriteAbove = size_t{1} << 16;
  static constexpr size_t kWaitAbove = size_t{1} << 24;

  void run() noexcept;
  void write_block(std::string_view records, std::string_view index, uint64_t steps);

  PrivateFile file_;
  const std::string warning_;  // made while there is memory
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable written_;
  std::string line_;
  std::string records_;
  std::string index_;
  uint64_t steps_ = 0;
  bool now_ = false;      // somebody waits for it
  bool writing_ = false;  // the thread has taken what was given
  bool stop_ = false;
  std::atomic<bool> failed_ = false;
  // Of the thread alone:
  uint32_t seed_ = 0;
  uint32_t number_ = 0;
  std::thread thread_;
};

}  // namespace quire::record
