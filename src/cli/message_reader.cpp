#include "cli/message_reader.h"

#include <iostream>
#include <unistd.h>

#include <fmt/format.h>

namespace quire::cli {
namespace {

std::atomic<bool> interrupted_flag = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // so a signal handler may set it

void note_interrupt(int) { interrupted_flag = true; }

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
  termios quiet = before_;
  // Line by line, the kernel would keep no more than 4,096 bytes of a pasted line.
  quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
  tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
}

AnswerTerminal::~AnswerTerminal() {
  tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  interrupted_flag = false;
}

}  // namespace quire::cli
