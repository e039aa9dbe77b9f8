#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "record/part_writer.h"

namespace quire::record {

/// Writes records to a file as log blocks (run_format.h), in a separate thread: the caller waits for the disk
/// only if 16 MiB of records are queued already. Records are in the file, readable by other programs, half a
/// second after give(). For one caller.
class BlockWriter {
 public:
  /// `warning` is logged once if the file can no longer be written. Throws Error if no thread can be started.
  BlockWriter(PartWriter files, std::string warning);
  ~BlockWriter();  // writes the queued records
  BlockWriter(const BlockWriter&) = delete;

  /// Call first. `line`: the file's first line. May throw std::bad_alloc.
  void begin(std::string line);
  /// Adds whole records with their index entries; `steps` were planned up to their end. If it throws
  /// std::bad_alloc, they are not added.
  void give(std::string_view records, std::string_view index, uint64_t steps);
  /// Ends the present part of the log with the record `last`; the next part begins with `line` and the record
  /// `first`. False if the part before has not begun yet, or writing has failed. Then, and if it throws
  /// std::bad_alloc, nothing has changed.
  bool begin_part(std::string_view last, std::string line, std::string_view first);
  /// Returns when all records are written, or when writing has failed.
  void flush() noexcept;
  /// Stops writing.
  void cut_off() noexcept;
  bool failed() const { return failed_; }

 private:
  static constexpr size_t kWriteAbove = size_t{1} << 16;
  static constexpr size_t kWaitAbove = size_t{1} << 24;

  /// Where the present part ends in the queue.
  struct Cut {
    size_t records = 0;
    size_t index = 0;
    uint64_t steps = 0;
    std::string line;  // of the next part
  };

  void run() noexcept;
  void write(std::string_view records, std::string_view index, uint64_t steps, const std::optional<Cut>& cut);
  void write_block(std::string_view records, std::string_view index, uint64_t steps);

  PartWriter files_;
  const std::string warning_;  // allocated in advance, while there is memory
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable written_;
  std::string line_;
  std::string records_;
  std::string index_;
  uint64_t steps_ = 0;
  std::optional<Cut> cut_;
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
