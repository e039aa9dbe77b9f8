#include "cli/chat_history.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"
#include "base/output_file.h"

namespace quire::cli {
namespace {

constexpr mode_t kOwnerOnly = 0600;

std::string to_line(std::string_view message) {
  std::string line;
  for (const char c : message) {
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\\') {
      line += "\\\\";
    } else {
      line += c;
    }
  }
  return line + '\n';
}

std::string from_line(std::string_view line) {
  std::string message;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool escaped = line[i] == '\\' && i + 1 < line.size();
    if (escaped) ++i;
    message += escaped && line[i] == 'n' ? '\n' : line[i];
  }
  return message;
}

/// The end of the file, from the beginning of a line on.
std::string read_end(const std::filesystem::path& file, uint64_t size) {
  std::ifstream in(file, std::ios::binary);
  const uint64_t skipped = size > ChatHistory::kLargestFile ? size - ChatHistory::kLargestFile : 0;
  in.seekg(static_cast<std::streamoff>(skipped));
  std::string text(static_cast<size_t>(size - skipped), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || !in.is_open()) throw file_error(file, "the history cannot be read");
  text.resize(static_cast<size_t>(in.gcount()));
  if (skipped > 0) text.erase(0, text.find('\n') == std::string::npos ? text.size() : text.find('\n') + 1);
  return text;
}

/// Makes the file if it is not there.
void append(const std::filesystem::path& path, std::string_view text) {
  const auto fails = [&] {
    return file_error(path, "cannot be written: " + std::generic_category().message(errno));
  };
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, kOwnerOnly);
  if (file < 0) throw fails();
  bool good = ::fchmod(file, kOwnerOnly) == 0;
  while (good && !text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    good = written >= 0;
    if (good) text.remove_prefix(static_cast<size_t>(written));
  }
  const Error why = fails();
  ::close(file);
  if (!good) throw why;
}

}  // namespace

ChatHistory::ChatHistory(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code failed;
  const auto status = std::filesystem::status(file_, failed);
  if (!std::filesystem::exists(status)) return;
  if (!std::filesystem::is_regular_file(status)) throw file_error(file_, "the history is not a regular file");
  const uint64_t size = std::filesystem::file_size(file_, failed);
  if (failed) throw file_error(file_, "the history cannot be read: " + failed.message());
  std::string text = read_end(file_, size);
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (end > 0) entries_.push_back(from_line(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const bool too_many = entries_.size() > kMostEntries;
  if (too_many) entries_.erase(entries_.begin(), entries_.end() - kMostEntries);
  if (!too_many && size <= kLargestFile) return;
  text.clear();
  for (const std::string& entry : entries_) text += to_line(entry);
  replace_file(file_, text, kOwnerOnly);
}

void ChatHistory::add(const std::string& message) {
  if (!entries_.empty() && entries_.back() == message) return;
  if (entries_.size() >= kMostEntries) entries_.erase(entries_.begin());
  entries_.push_back(message);
  if (file_.empty() || message.size() > kLongestEntry) return;
  try {
    const std::filesystem::path folder = file_.parent_path();
    std::error_code failed;
    if (std::filesystem::create_directories(folder, failed)) {
      std::filesystem::permissions(folder, std::filesystem::perms::owner_all, failed);
    }
    append(file_, to_line(message));
  } catch (const Error&) {
    file_.clear();
    throw;
  }
}

std::optional<std::filesystem::path> chat_history_file() {
  const auto variable = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  std::filesystem::path state = variable("XDG_STATE_HOME");
  if (!state.is_absolute()) {
    const std::filesystem::path home = variable("HOME");
    if (!home.is_absolute()) return std::nullopt;
    state = home / ".local" / "state";
  }
  return state / "quire" / "chat_history";
}

}  // namespace quire::cli
