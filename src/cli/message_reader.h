#pragma once

#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <termios.h>
#include <vector>

#include "cli/chat_history.h"

// How messages get from standard input to a conversation.
namespace quire::cli {

/// What somebody did at the prompt.
struct Input {
  enum class Kind {
    kMessage,
    kDropped,    // Ctrl-C while something was written, which is dropped
    kInterrupt,  // Ctrl-C at an empty prompt
    kEnd,        // of the input
  };
  Kind kind = Kind::kEnd;
  std::string text{};  // of a message: UTF-8; it may have several lines
};

class MessageReader {
 public:
  virtual ~MessageReader() = default;
  virtual Input read() = 0;
};

/// Every line is a message, as programs write them.
class LineReader final : public MessageReader {
 public:
  /// `prompt`: written to standard error before each.
  explicit LineReader(std::string prompt) : prompt_(std::move(prompt)) {}
  Input read() override;

 private:
  std::string prompt_;
};

/// A person at a terminal, with line editing and history. Enter sends; a line that ends with a backslash goes
/// on in the next one, and so it does after Alt-Enter. A pasted text is inserted as it is, with its lines, if
/// the terminal marks it ("bracketed paste"). One at a time; REQUIRES that standard input and output are
/// terminals.
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

/// While it lives, Ctrl-C ends nothing but sets interrupted().
class InterruptNote {
 public:
  InterruptNote();
  ~InterruptNote();
  InterruptNote(const InterruptNote&) = delete;
  InterruptNote& operator=(const InterruptNote&) = delete;

  /// Whoever has done what it asks for sets it back.
  static std::atomic<bool>& interrupted();

 private:
  struct sigaction former_ {};
};

/// While it lives, what is typed is not shown but kept for the next message, and Ctrl-C is noted, anew;
/// signals that end the process leave the terminal as it was. At most one at a time; REQUIRES that standard
/// input is a terminal.
class AnswerTerminal {
 public:
  AnswerTerminal();
  ~AnswerTerminal();
  AnswerTerminal(const AnswerTerminal&) = delete;
  AnswerTerminal& operator=(const AnswerTerminal&) = delete;

 private:
  InterruptNote note_;
  termios before_{};
  struct sigaction endings_[3]{};  // what SIGTERM, SIGHUP and SIGQUIT did before
};

}  // namespace quire::cli
