#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"

namespace quire::cli {

/// The messages of a conversation in OpenAI's form: an optional system prompt, then questions and answers.
/// Not thread-safe.
class Conversation {
 public:
  /// The system prompt; empty: none.
  std::string_view system() const;
  void set_system(std::string_view text);

  void ask(std::string_view text);
  void answer(std::string_view text);
  /// Removes all questions and answers; the system prompt stays.
  void clear();
  /// Removes the last question with its answer. False if there is none.
  bool undo();
  /// Removes the first question with its answer. False if it is the only one.
  bool forget_first();
  /// Removes the answer to the last question, so that the question is the last message. False if there is no
  /// question.
  bool take_answer_back();

  /// Whether the last message is a question.
  bool awaits_answer() const;
  /// The whole conversation as text for a terminal.
  std::string text() const;
  /// The number of questions.
  size_t num_questions() const;
  const json::array& messages() const { return messages_; }
  /// The inputs of a chat template. Throws Error if a message does not have OpenAI's form.
  json::object template_context() const;

  /// Loads untrusted messages: an array, or an object with "messages". Throws Error with the path.
  static Conversation load(const std::filesystem::path& file);
  /// Saves them as a request body: {"model": ..., "messages": [...]}. Throws Error with the path.
  void save(const std::filesystem::path& file, const std::string& model) const;

 private:
  size_t first() const { return system().empty() ? 0 : 1; }  // after the system prompt

  json::array messages_;
};

/// Whether a file is a saved conversation, which may be overwritten.
bool is_saved_conversation(const std::filesystem::path& file);

}  // namespace quire::cli
