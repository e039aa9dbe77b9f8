#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "grammar/compiler.h"

namespace quire::grammar {

/// The exit status of a process that has reached its limit of memory.
inline constexpr int kNoMemory = 3;

/// The process that compiles a grammar before this one does. For one thread at a time, except interrupt().
class TrialProcess {
 public:
  /// `greeting`: what it is told first.
  TrialProcess(const CompilerConfig& config, std::string greeting)
      : config_(config), greeting_(std::move(greeting)) {}
  ~TrialProcess() { stop(); }
  TrialProcess(const TrialProcess&) = delete;
  TrialProcess& operator=(const TrialProcess&) = delete;

  /// Empty if the grammar compiles within the limits. Starts the process if it does not run.
  std::optional<CompileError> try_out(std::string_view grammar);
  /// Makes try_out() return kInterrupted, now and from now on. Any thread.
  void interrupt();

 private:
  bool start();
  bool send(std::string_view grammar);
  int stop();  // returns the status of wait(2)
  CompileError why_it_ended(int status) const;

  const CompilerConfig& config_;
  const std::string greeting_;
  pid_t pid_ = -1;
  std::mutex mutex_;  // guards `socket_` where it changes, and `interrupted_`
  int socket_ = -1;
  bool interrupted_ = false;
};

// Messages on the socket: a length of 8 bytes, then as many bytes. The first has the limits and the
// vocabulary; then come grammars, one after the other; each is answered with "" or with why it does not
// compile.

/// The first message, and back.
std::string greeting_of(const CompilerConfig& config, const Vocabulary& vocabulary);
struct Greeting {
  double cpu_seconds = 0;
  uint64_t bytes = 0;
  Vocabulary vocabulary;
};
std::optional<Greeting> read_greeting(std::string_view message);

/// False if the other side is gone, or the message would be larger than `max_bytes`; or after `timeout_ms`,
/// if >= 0; then `*timed_out`, if not null, becomes true.
bool write_message(int socket, std::string_view message);
bool read_message(int socket, std::string& message, uint64_t max_bytes, int timeout_ms,
                  bool* timed_out = nullptr);

}  // namespace quire::grammar
