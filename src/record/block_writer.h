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

/// Writes records to a file as log blocks (run_format.h), in a separate thread: the caller waits for the disk
/// only if 16 MiB of records are queued already. Records are in the file, readable by other programs, half a
/// second after give(). For one caller.
class BlockWriter {
 public:
  /// `warning` is logged once if the file can no longer be written. Throws Error if no thread can be started.
  BlockWriter(PrivateFile file, std::string warning);
  ~BlockWriter();  // writes the queued records
  BlockWriter(const BlockWriter&) = delete;

  /// Call first. `line`: the file's first line. May throw std::bad_alloc.
  void begin(std::string line);
  /// Adds whole records with their index entries; `steps` were planned up to their end. If it throws
  /// std::bad_alloc, they are not added.
  void give(std::string_view records, std::string_view index, uint64_t steps);
  /// Returns when all records are written, or when writing has failed.
  void flush() noexcept;
  /// Stops writing.
  void cut_off() noexcept;
  bool failed() const { return failed_; }

 private:
  static constexpr size_t kWriteAbove = size_t{1} << 16;
  static constexpr size_t kWaitAbove = size_t{1} << 24;

  void run() noexcept;
  void write_block(std::string_view records, std::string_view index, uint64_t steps);

  PrivateFile file_;
  const std::string warning_;  // allocated in advance, while there is memory
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable written_;
  std::string line_;
  std::string records_;
  std::string index_;
  uint64_t steps_ = 0;
  bool now_ = false;      // a caller waits for it
  bool writing_ = false;  // the thread is writing the records that it has taken
  bool stop_ = false;
  std::atomic<bool> failed_ = false;
  // For the writer thread only:
  uint32_t seed_ = 0;
  uint32_t number_ = 0;
  std::thread thread_;
};

}  // namespace quire::record
