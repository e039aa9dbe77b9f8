#pragma once

#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <termios.h>
#include <vector>

#include "cli/chat_history.h"

// Reads the messages of a conversation from standard input.
namespace quire::cli {

/// The user's input at the prompt.
struct Input {
  enum class Kind {
    kMessage,
    kDropped,    // Ctrl-C with text at the prompt; the text is dropped
    kInterrupt,  // Ctrl-C at an empty prompt
    kEnd,        // end of the input
  };
  Kind kind = Kind::kEnd;
  std::string text{};  // the text of a message: UTF-8; may have several lines
};

class MessageReader {
 public:
  virtual ~MessageReader() = default;
  virtual Input read() = 0;
};

/// Every line is a message; for input from programs.
class LineReader final : public MessageReader {
 public:
  /// `prompt`: written to standard error before each.
  explicit LineReader(std::string prompt) : prompt_(std::move(prompt)) {}
  Input read() override;

 private:
  std::string prompt_;
};

/// For interactive use at a terminal, with line editing and history. Enter sends; a line that ends with a
/// backslash continues on the next line, and so does a line after Alt-Enter. Pasted text is inserted with its
/// lines if the terminal marks it ("bracketed paste"). One object at a time. REQUIRES: standard input and
/// output are terminals.
class LineEditor final : public MessageReader {
 public:
  /// `history` gets every message. `commands`: completed by Tab, each "/name".
  LineEditor(ChatHistory history, std::vector<std::string> commands);
  ~LineEditor() override;
  Input read() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// While it exists, Ctrl-C only sets interrupted().
class InterruptNote {
 public:
  InterruptNote();
  ~InterruptNote();
  InterruptNote(const InterruptNote&) = delete;
  InterruptNote& operator=(const InterruptNote&) = delete;

  /// The code that handles the interrupt resets it.
  static std::atomic<bool>& interrupted();

 private:
  struct sigaction former_ {};
};

/// While it exists, typed text is not shown but kept for the next message, and Ctrl-C sets interrupted(),
/// which the constructor resets; signals that end the process restore the terminal. At most one object at a
/// time. REQUIRES: standard input is a terminal.
class AnswerTerminal {
 public:
  AnswerTerminal();
  ~AnswerTerminal();
  AnswerTerminal(const AnswerTerminal&) = delete;
  AnswerTerminal& operator=(const AnswerTerminal&) = delete;

 private:
  InterruptNote note_;
  termios before_{};
  struct sigaction endings_[3]{};  // the previous actions of SIGTERM, SIGHUP and SIGQUIT
};

}  // namespace quire::cli
