#include "cli/message_reader.h"

#include <array>
#include <csignal>
#include <iostream>
#include <unistd.h>

#include <fmt/format.h>

namespace quire::cli {
namespace {

std::atomic<bool> interrupted_flag = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // so a signal handler may set it

void note_interrupt(int) { interrupted_flag = true; }

termios usual_terminal;  // set before end_quietly() can be called

/// Ends the process like the signal, with the terminal restored.
void end_quietly(int signal) {
  tcsetattr(STDIN_FILENO, TCSANOW, &usual_terminal);
  std::signal(signal, SIG_DFL);
  raise(signal);
}

constexpr std::array<int, 3> kEndings = {SIGTERM, SIGHUP, SIGQUIT};

}  // namespace

Input LineReader::read() {
  fmt::print(stderr, "{}", prompt_);
  Input input;
  if (std::getline(std::cin, input.text)) input.kind = Input::Kind::kMessage;
  return input;
}

InterruptNote::InterruptNote() {
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &former_);
}

InterruptNote::~InterruptNote() { sigaction(SIGINT, &former_, nullptr); }

std::atomic<bool>& InterruptNote::interrupted() { return interrupted_flag; }

AnswerTerminal::AnswerTerminal() {
  interrupted_flag = false;
  tcgetattr(STDIN_FILENO, &before_);
  usual_terminal = before_;
  struct sigaction action {};
  action.sa_handler = end_quietly;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kEndings.size(); ++i) sigaction(kEndings[i], &action, &endings_[i]);
  termios quiet = before_;
  // Line by line, the kernel would keep no more than 4,096 bytes of a pasted line.
  quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
  tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
}

AnswerTerminal::~AnswerTerminal() {
  tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  for (size_t i = 0; i < kEndings.size(); ++i) sigaction(kEndings[i], &endings_[i], nullptr);
  interrupted_flag = false;
}

}  // namespace quire::cli
