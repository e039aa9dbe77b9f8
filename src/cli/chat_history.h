#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::cli {

/// What somebody has written in conversations, kept for the next ones in a file that only its owner may read:
/// one message a line, a newline in it as \n and a backslash as \\. Several programs may add to it at the
/// same time. Not thread-safe.
class ChatHistory {
 public:
  static constexpr size_t kMostEntries = 1000;
  static constexpr size_t kLongestEntry = size_t{16} << 10;  // bytes; longer ones are not kept in the file
  static constexpr size_t kLargestFile = size_t{4} << 20;    // bytes

  /// In memory alone.
  ChatHistory() = default;
  /// With what `file` holds. Its folder is made when the first message is added; a file that has more than
  /// kMostEntries or kLargestFile is cut to the newest ones. Throws Error with the path.
  explicit ChatHistory(std::filesystem::path file);

  /// Oldest first.
  const std::vector<std::string>& entries() const { return entries_; }
  /// Throws Error with the path if the file cannot be written; then the rest is kept in memory alone.
  void add(const std::string& message);

 private:
  std::filesystem::path file_;
  std::vector<std::string> entries_;
};

/// $XDG_STATE_HOME/quire/chat_history, with ~/.local/state where that is not set to an absolute path; nothing
/// where there is no home either.
std::optional<std::filesystem::path> chat_history_file();

}  // namespace quire::cli
