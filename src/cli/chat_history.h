#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::cli {

/// The messages that the user has entered in conversations, kept in a file that only its owner may read: one
/// message per line, with a newline as
/// and a backslash as \\. Several programs may append at the same time. Not thread-safe.
class ChatHistory {
 public:
  static constexpr size_t kMostEntries = 1000;
  static constexpr size_t kLongestEntry = size_t{16} << 10;  // bytes; longer entries are not kept in the file
  static constexpr size_t kLargestFile = size_t{4} << 20;    // bytes

  /// In memory only.
  ChatHistory() = default;
  /// Loads `file`. Its folder is created when the first message is added; a file with more than kMostEntries
  /// or kLargestFile is cut to the newest entries. Throws Error with the path.
  explicit ChatHistory(std::filesystem::path file);

  /// Oldest first.
  const std::vector<std::string>& entries() const { return entries_; }
  /// Throws Error with the path if the file cannot be written; from then on entries are kept in memory only.
  void add(const std::string& message);

 private:
  std::filesystem::path file_;
  std::vector<std::string> entries_;
};

/// $XDG_STATE_HOME/quire/chat_history; ~/.local/state replaces a variable that is not an absolute path. Empty
/// if there is no home directory either.
std::optional<std::filesystem::path> chat_history_file();

}  // namespace quire::cli
