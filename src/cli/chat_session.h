#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chat/chat_templates.h"
#include "cli/chat_settings.h"
#include "cli/conversation.h"
#include "cli/generate.h"
#include "cli/message_reader.h"

namespace quire::startup {
struct LocalEngine;
}

namespace quire::cli {

/// The totals of all answers so far.
struct ChatTotals {
  uint64_t answers = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;  // of these
  uint64_t completion_tokens = 0;
  uint64_t decoded_tokens = 0;  // without the first token of each answer, which comes with the prompt
  Nanos prefill_time = 0;
  Nanos decode_time = 0;

  void add(const Generated& done);
};

/// Holds conversations with a model, one after the other: reads messages, executes commands, shows answers.
/// An error of a message or a command is reported, and the conversation stays as it was. Not thread-safe.
class ChatSession {
 public:
  struct Options {
    std::string model;   // its name
    std::string system;  // the system prompt; empty: none
    SamplingOptions sampling;
    bool verbose = false;
  };
  /// All but `options` must outlive the session.
  ChatSession(startup::LocalEngine& local, const chat::ChatTemplates& templates, MessageReader& reader,
              Options options);

  /// Runs until the input ends. Returns the exit status: 1 if the input is not interactive and something was
  /// refused.
  int run();

  /// "/help" and so on.
  static std::vector<std::string> command_names();

 private:
  struct Command;
  static const std::vector<Command>& all_commands();

  void greet() const;
  void take(const std::string& text);
  void obey(std::string_view text);
  bool answer_last();
  /// The model's input text; `answers`: with the beginning of an answer.
  Expected<std::string> render(const Conversation& conversation, bool answers = false) const;
  engine::GenerationRequest next_request();
  void show_answer(const Generated& done);

  // The commands; `argument`: the text after the name.
  void help(const std::string& argument);
  void set(const std::string& argument);
  void system(const std::string& argument);
  void save(const std::string& argument);
  void load(const std::string& argument);
  void stats(const std::string& argument);
  void show(const std::string& argument);
  void regenerate(const std::string& argument);
  void undo(const std::string& argument);
  void forget(const std::string& argument);
  void begin_anew(const std::string& argument);
  void quit(const std::string& argument);

  /// Output, on standard output.
  void print(std::string_view text) const;
  /// A notice, only on a terminal.
  void note(std::string_view text) const;
  /// An error.
  void complain(std::string_view text);

  startup::LocalEngine& local_;
  const chat::ChatTemplates& templates_;
  MessageReader& reader_;
  const Options options_;
  const bool is_person_;
  ChatSettings settings_;
  Conversation conversation_;
  std::filesystem::path
      file_;              // the file to which the conversation was last saved, or from which it was loaded
  uint64_t attempt_ = 0;  // at the same question
  ChatTotals totals_;
  std::optional<Generated> last_;
  bool failed_ = false;
  bool over_ = false;
};

}  // namespace quire::cli
