#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/step_work.h"
#include "base/private_file.h"

namespace quire::engine {

/// Gets the record of each step, on the engine thread, once what the step gave has been delivered.
class StepSink {
 public:
  virtual ~StepSink() = default;
  virtual void take(const backend::StepRecord& record) noexcept = 0;
};

/// A file of step records: a line with a JSON object (the kind, the version, the names of the columns, and
/// what was running), then a line with a JSON array for each step. A thread of its own writes it, so the
/// engine waits for no disk: up to kMostWaiting records are kept for it, beyond that new ones are dropped;
/// the steps' numbers show which. Once it has half of the size that it may have, the file is renamed to
/// PATH.1, in place of an earlier one, and begun anew.
class StepLog final : public StepSink {
 public:
  static constexpr size_t kMostWaiting = 20'000;

  /// `facts`: members of a JSON object that say what was running, as "\"model\":\"x\",\"threads\":2"; may be
  /// empty. `most_bytes`: of all its files together. Throws Error as PrivateFile does. If writing fails
  /// later, it warns once and the log ends with the last whole line.
  StepLog(const std::filesystem::path& path, std::string facts, uint64_t most_bytes);
  /// Writes what waits.
  ~StepLog() override;
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  /// Throws if the constructor would. Changes nothing.
  static void check_place(const std::filesystem::path& path);

  void take(const backend::StepRecord& record) noexcept override;
  /// Records that were dropped.
  uint64_t dropped() const;

 private:
  void run();
  void write(const std::vector<backend::StepRecord>& records);
  void begin_file();
  void put(std::string_view text);

  const std::filesystem::path path_;
  const std::string head_;
  const uint64_t most_bytes_;
  // Of the writing thread, once it runs.
  std::unique_ptr<PrivateFile> out_;
  uint64_t bytes_ = 0;
  bool failed_ = false;

  mutable std::mutex mutex_;  // guards the following members
  std::vector<backend::StepRecord> waiting_;
  uint64_t dropped_ = 0;
  bool ends_ = false;
  std::condition_variable wake_;

  std::thread thread_;  // the last member, because it uses all of the above
};

}  // namespace quire::engine
