#include "record/block_reader.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/file_error.h"

namespace quire::record {
namespace {

constexpr size_t kLongestLine = size_t{1} << 16;

}  // namespace

BlockReader::BlockReader(const std::filesystem::path& path) : path_(path), file_(path, std::ios::binary) {
  std::error_code failed;
  if (!std::filesystem::exists(path, failed))
    throw file_error(path, failed ? failed.message() : "no such file");
  if (!std::filesystem::is_regular_file(path, failed)) throw file_error(path, "not a regular file");
  file_.seekg(0, std::ios::end);
  const auto size = file_.tellg();
  if (!file_) throw file_error(path, "cannot be read");
  size_ = static_cast<uint64_t>(size);
  file_.seekg(0);
  const std::string start = fmt::format("{{\"{}\":", kFormatKey);
  if (size_ == 0)
    throw file_error(path_, "empty: not a decision log, or the server stopped before its first line");
  read(line_, std::min<uint64_t>(size_, kLongestLine));
  const std::string_view head = std::string_view(line_).substr(0, start.size());
  if (head != std::string_view(start).substr(0, head.size())) {
    throw file_error(path_, "not a decision log (what --decision-log writes begins with " + start + ")");
  }
  const size_t end = line_.find('\n');
  if (end == std::string::npos) throw file_error(path_, "a decision log that ends within its first line");
  line_.resize(end + 1);
  file_.seekg(static_cast<std::streamoff>(line_.size()));
  at_ = line_.size();
  seed_ = checksum(line_, 0);
}

Error BlockReader::damaged(uint64_t at, std::string_view what) const {
  return file_error(path_, at, fmt::format("damaged: {}", what));
}

/// REQUIRES: the file has so many more.
void BlockReader::read(std::string& out, size_t bytes) {
  out.resize(bytes);
  file_.read(out.data(), static_cast<std::streamsize>(bytes));
  if (!file_) throw file_error(path_, at_, "cannot be read");
  at_ += bytes;
}

bool BlockReader::next(bool records_wanted) {
  if (at_ == size_ || cut_off_) return false;
  const uint64_t begin = at_;
  cut_off_ = size_ - at_ < BlockHead::kBytes;
  if (cut_off_) return false;
  std::string head;
  read(head, BlockHead::kBytes);
  if (!read_block_head(head, seed_, head_)) {
    throw damaged(begin, number_ == 0 ? "the checksum of the first line, or of what follows it, is wrong"
                                      : "the checksum of a log block's header is wrong");
  }
  if (head_.number != number_) {
    throw damaged(begin, fmt::format("log block {} where log block {} is due", head_.number, number_));
  }
  ++number_;
  cut_off_ = size_ - at_ < uint64_t{head_.index_bytes} + head_.record_bytes;
  if (cut_off_) return false;
  const uint64_t index_at = at_;
  read(index_, head_.index_bytes);
  if (checksum(index_, seed_) != head_.index_check)
    throw damaged(index_at, "the checksum of an index is wrong");
  records_at_ = at_;
  if (!records_wanted) {
    at_ += head_.record_bytes;
    file_.seekg(static_cast<std::streamoff>(at_));
    records_.clear();
    return true;
  }
  read(records_, head_.record_bytes);
  if (checksum(records_, seed_) != head_.record_check) {
    throw damaged(records_at_,
                  fmt::format("the checksum of the {} bytes from there on is wrong", records_.size()));
  }
  return true;
}

}  // namespace quire::record
