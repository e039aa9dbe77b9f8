#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"

namespace quire::cli {

/// The messages of a conversation in OpenAI's form: perhaps a system prompt, then questions and answers. Not
/// thread-safe.
class Conversation {
 public:
  /// The system prompt; empty: none.
  std::string_view system() const;
  void set_system(std::string_view text);

  void ask(std::string_view text);
  void answer(std::string_view text);
  /// Without what was asked and answered; the system prompt stays.
  void clear();
  /// Takes the last question back, with its answer. False if there is none.
  bool undo();
  /// Drops the first question, with its answer. False if there is no other one behind it.
  bool forget_first();
  /// Takes the answer to the last question back, so that the question is the last message. False if there is
  /// no question.
  bool take_answer_back();

  /// The last message is a question.
  bool awaits_answer() const;
  /// All of it, as a person reads it on a terminal.
  std::string text() const;
  /// The number of questions.
  size_t num_questions() const;
  const json::array& messages() const { return messages_; }
  /// What a chat template is given. Throws Error if a message is none of OpenAI's.
  json::object template_context() const;

  /// Messages that others wrote: an array of them, or an object with "messages". Throws Error with the path.
  static Conversation load(const std::filesystem::path& file);
  /// As a request body: {"model": ..., "messages": [...]}. Throws Error with the path.
  void save(const std::filesystem::path& file, const std::string& model) const;

 private:
  size_t first() const { return system().empty() ? 0 : 1; }  // behind the system prompt

  json::array messages_;
};

/// Whether a file may be written over as a conversation that was saved.
bool is_saved_conversation(const std::filesystem::path& file);

}  // namespace quire::cli
