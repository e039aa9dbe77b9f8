#include "record/block_writer.h"

#include <chrono>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "record/run_format.h"

namespace quire::record {
namespace {

constexpr auto kLatest = std::chrono::milliseconds(500);

}  // namespace

BlockWriter::BlockWriter(PartWriter files, std::string warning)
    : files_(std::move(files)), warning_(std::move(warning)) {
  // So that a few records can still be added when memory is short.
  records_.reserve(kWriteAbove);
  index_.reserve(kWriteAbove);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw Error(fmt::format("no thread for the decision log: {}", error.what()));
  }
}

BlockWriter::~BlockWriter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void BlockWriter::begin(std::string line) {
  const std::lock_guard lock(mutex_);
  line_ = std::move(line);
}

void BlockWriter::give(std::string_view records, std::string_view index, uint64_t steps) {
  std::unique_lock lock(mutex_);
  written_.wait(lock, [&] { return records_.size() < kWaitAbove || failed_; });
  if (failed_) return;
  const bool first = records_.empty();
  if (records_.capacity() - records_.size() < records.size()) {
    records_.reserve(2 * records_.size() + records.size());
  }
  if (index_.capacity() - index_.size() < index.size()) index_.reserve(2 * index_.size() + index.size());
  index_.append(index);
  records_.append(records);
  steps_ = steps;
  const bool wakes = first || records_.size() >= kWriteAbove;
  lock.unlock();
  if (wakes) wake_.notify_one();
}

bool BlockWriter::begin_part(std::string_view last, std::string line, std::string_view first) {
  std::unique_lock lock(mutex_);
  if (cut_ || failed_) return false;
  records_.reserve(records_.size() + last.size() + first.size());
  records_.append(last);
  cut_ = {records_.size(), index_.size(), steps_, std::move(line)};
  records_.append(first);
  lock.unlock();
  wake_.notify_one();
  return true;
}

void BlockWriter::flush() noexcept {
  std::unique_lock lock(mutex_);
  now_ = true;
  wake_.notify_one();
  written_.wait(lock, [&] { return (!now_ && records_.empty() && !writing_) || failed_; });
}

void BlockWriter::cut_off() noexcept {
  if (!failed_.exchange(true)) log_warning(warning_);
  written_.notify_all();
}

/// Waits for records, and then for half a second, for many of them, for the end of a part, or for a flush.
void BlockWriter::run() noexcept {
  std::string records;
  std::string index;
  try {
    records.reserve(kWriteAbove);
    index.reserve(kWriteAbove);
  } catch (...) {
    cut_off();
  }
  std::unique_lock lock(mutex_);
  const auto urgent = [&] { return stop_ || now_ || cut_ || records_.size() >= kWriteAbove; };
  while (true) {
    wake_.wait(lock, [&] { return stop_ || now_ || !records_.empty(); });
    if (!urgent()) wake_.wait_for(lock, kLatest, urgent);
    now_ = false;
    const bool last = stop_;
    writing_ = true;
    std::swap(records, records_);
    std::swap(index, index_);
    const uint64_t steps = steps_;
    const std::string line = std::exchange(line_, {});
    const std::optional<Cut> cut = std::exchange(cut_, std::nullopt);
    lock.unlock();
    if (!failed_) {
      try {
        if (!line.empty()) {
          seed_ = checksum(line, 0);
          if (!files_.write(line)) cut_off();
        }
        write(records, index, steps, cut);
      } catch (...) {  // out of memory
        cut_off();
      }
    }
    records.clear();
    index.clear();
    lock.lock();
    writing_ = false;
    written_.notify_all();
    if (last) return;
  }
}

void BlockWriter::write(std::string_view records, std::string_view index, uint64_t steps,
                        const std::optional<Cut>& cut) {
  if (cut) {
    write_block(records.substr(0, cut->records), index.substr(0, cut->index), cut->steps);
    if (failed_) return;
    if (!files_.begin_next(cut->line)) return cut_off();
    seed_ = checksum(cut->line, 0);
    number_ = 0;
    records.remove_prefix(cut->records);
    index.remove_prefix(cut->index);
  }
  if (!records.empty()) write_block(records, index, steps);
}

void BlockWriter::write_block(std::string_view records, std::string_view index, uint64_t steps) {
  const std::string head = block_head(number_++, steps, index, records, seed_);
  if (!files_.write(head) || !files_.write(index) || !files_.write(records)) cut_off();
}

}  // namespace quire::record
