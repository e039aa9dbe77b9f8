#include "engine/step_log.h"

#include <chrono>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/describe.h"
#include "base/error.h"
#include "base/log.h"

namespace quire::engine {
namespace {

constexpr FileKind kStepLogKind{"step log", "{\"step_log\":"};
constexpr std::chrono::milliseconds kPause{200};  // in which records gather

std::string head_of(const std::string& facts) {
  std::string columns;
  backend::StepRecord none;
  backend::StepRecord::for_each_field(none, [&](std::string_view name, auto&) {
    fmt::format_to(std::back_inserter(columns), "{}\"{}\"", columns.empty() ? "" : ",", name);
  });
  return fmt::format("{}{},\"columns\":[{}]{}{}}}\n", kStepLogKind.begins, backend::kStepLogVersion, columns,
                     facts.empty() ? "" : ",", facts);
}

}  // namespace

StepLog::StepLog(const std::filesystem::path& path, std::string facts, uint64_t most_bytes)
    : path_(path), head_(head_of(facts)), most_bytes_(most_bytes) {
  waiting_.reserve(kMostWaiting);
  begin_file();
  thread_ = std::thread([this] { run(); });
}

StepLog::~StepLog() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void StepLog::check_place(const std::filesystem::path& path) { check_private_file(path, kStepLogKind); }

void StepLog::take(const backend::StepRecord& record) noexcept {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() == waiting_.capacity()) {
    ++dropped_;
  } else {
    waiting_.push_back(record);
  }
}

uint64_t StepLog::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void StepLog::run() {
  std::vector<backend::StepRecord> records;
  records.reserve(kMostWaiting);
  bool ends = false;
  while (!ends) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kPause, [this] { return ends_; });
      ends = ends_;
      records.swap(waiting_);
    }
    try {
      if (!failed_) write(records);
    } catch (...) {
      failed_ = true;
      log_warning(fmt::format("the step log ends: {}", describe_current_exception()));
    }
    records.clear();
  }
}

void StepLog::begin_file() {
  out_ = std::make_unique<PrivateFile>(path_, kStepLogKind);
  bytes_ = 0;
  put(head_);
}

void StepLog::write(const std::vector<backend::StepRecord>& records) {
  std::string lines;
  for (const backend::StepRecord& record : records) {
    bool first = true;
    backend::StepRecord::for_each_field(record, [&](std::string_view, const auto& value) {
      fmt::format_to(std::back_inserter(lines), "{}{}", std::exchange(first, false) ? '[' : ',', value);
    });
    lines += "]\n";
  }
  if (lines.empty()) return;
  if (bytes_ + lines.size() > most_bytes_ / 2 && bytes_ > head_.size()) {
    std::filesystem::rename(path_, path_.string() + ".1");
    begin_file();
  }
  put(lines);
}

void StepLog::put(std::string_view text) {
  if (!out_->write(text)) throw Error(path_.string() + ": cannot be written any more");
  bytes_ += text.size();
}

}  // namespace quire::engine
