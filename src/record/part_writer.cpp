#include "record/part_writer.h"

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/amounts.h"
#include "base/file_error.h"
#include "base/log.h"
#include "base/output_file.h"
#include "record/log_files.h"

namespace quire::record {
namespace {

namespace fs = std::filesystem;

/// A part while its first line is written.
fs::path new_path(const fs::path& log) { return fs::path(log) += ".new"; }

}  // namespace

PartWriter::PartWriter(const fs::path& log, uint64_t most_bytes) : log_(log), most_bytes_(most_bytes) {
  if (most_bytes > 0) {
    check_place(log, most_bytes);
    log_ = followed(log);
    warning_ = fmt::format(
        "{}: the decision log is longer than {}: its beginning can be deleted only up to a moment at which "
        "nothing ran, and there was none",
        log.string(), human_bytes(most_bytes));
  }
  file_.emplace(log_, decision_log_kind());
  if (most_bytes == 0) return;
  for (const uint64_t part : numbered_files(log_)) fs::remove(part_path(log_, part));
}

void PartWriter::check_place(const fs::path& log, uint64_t most_bytes) {
  check_private_file(log, decision_log_kind());
  if (most_bytes == 0) return;
  const fs::path target = followed(log);
  std::error_code none;
  if (fs::exists(target, none) && !fs::is_regular_file(target, none)) {
    throw file_error(log, "is not a regular file, so a log in parts cannot be written there");
  }
  for (const uint64_t part : numbered_files(target)) {
    const fs::path path = part_path(target, part);
    if (!is_part(path)) {
      throw file_error(
          path,
          fmt::format("is not a part of a decision log, and {} in parts would need its name: delete it, "
                      "or choose another name",
                      log.filename().string()));
    }
    check_private_file(path, decision_log_kind());
  }
  check_private_file(new_path(target), decision_log_kind());
}

bool PartWriter::write(std::string_view bytes) {
  if (!file_ || !file_->write(bytes)) return false;
  present_.bytes += bytes.size();
  bytes_ += bytes.size();
  while (most_bytes_ > 0 && bytes_ > most_bytes_ && !before_.empty()) {
    ::unlink(part_path(log_, before_.front().number).c_str());
    bytes_ -= before_.front().bytes;
    before_.pop_front();
  }
  if (most_bytes_ > 0 && bytes_ > most_bytes_ && !warning_.empty()) log_warning(std::exchange(warning_, {}));
  return true;
}

bool PartWriter::begin_next(std::string_view line) {
  const fs::path made = new_path(log_);
  const fs::path old = part_path(log_, present_.number);
  try {
    PrivateFile next(made, decision_log_kind());
    if (!next.write(line)) return false;
    // With a second name for the present part, the log is never without its latest part; not every file
    // system has second names.
    const bool named = ::link(log_.c_str(), old.c_str()) == 0 ||
                       (errno != EEXIST && std::rename(log_.c_str(), old.c_str()) == 0);
    if (!named) {
      log_warning(fmt::format("{}: the present part of the decision log cannot have this name: {}",
                              old.string(), std::generic_category().message(errno)));
      ::unlink(made.c_str());
      return false;
    }
    if (std::rename(made.c_str(), log_.c_str()) != 0) return false;
    file_.emplace(std::move(next));
  } catch (const Error&) {
    return false;
  }
  before_.push_back(present_);
  present_ = {present_.number + 1, line.size()};
  bytes_ += line.size();
  return true;
}

}  // namespace quire::record
