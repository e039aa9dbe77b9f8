#include "grammar/trial.h"

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace quire::grammar {
namespace {

constexpr int kTimeoutMs = 60'000;  // its CPU time is limited; it may have to wait for a CPU
constexpr uint64_t kMaxAnswerBytes = 64 << 10;

void append_number(std::string& out, uint64_t number) {
  for (size_t i = 0; i < sizeof(number); ++i) out += static_cast<char>(number >> (8 * i) & 0xFF);
}

uint64_t number_of(std::string_view bytes) {
  uint64_t out = 0;
  for (size_t i = 0; i < sizeof(out); ++i) out |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return out;
}

/// Takes the next field from the front of `rest`.
std::optional<uint64_t> take_number(std::string_view& rest) {
  if (rest.size() < sizeof(uint64_t)) return std::nullopt;
  const uint64_t out = number_of(rest);
  rest.remove_prefix(sizeof(uint64_t));
  return out;
}

bool write_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

bool read_all(int socket, std::string& out, size_t size, std::chrono::steady_clock::time_point until,
              bool forever, bool* timed_out) {
  out.clear();
  while (out.size() < size) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd waiting{socket, POLLIN, 0};
    const int ready = poll(&waiting, 1, forever ? -1 : static_cast<int>(std::max<int64_t>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && timed_out != nullptr) *timed_out = true;
    if (ready <= 0) return false;
    char buffer[64 << 10];
    const ssize_t got = recv(socket, buffer, std::min(sizeof(buffer), size - out.size()), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out.append(buffer, static_cast<size_t>(got));
  }
  return true;
}

}  // namespace

bool write_message(int socket, std::string_view message) {
  std::string head;
  append_number(head, message.size());
  return write_all(socket, head) && write_all(socket, message);
}

bool read_message(int socket, std::string& message, uint64_t max_bytes, int timeout_ms, bool* timed_out) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max(0, timeout_ms));
  if (!read_all(socket, message, sizeof(uint64_t), until, timeout_ms < 0, timed_out)) return false;
  const uint64_t size = number_of(message);
  return size <= max_bytes && read_all(socket, message, size, until, timeout_ms < 0, timed_out);
}

std::string greeting_of(const CompilerConfig& config, const Vocabulary& vocabulary) {
  std::string out;
  append_number(out, std::bit_cast<uint64_t>(config.trial_cpu_seconds));
  append_number(out, config.trial_bytes);
  append_number(out, vocabulary.ends.size());
  for (const TokenId id : vocabulary.ends) append_number(out, static_cast<uint64_t>(id));
  for (const std::string& token : vocabulary.tokens) {
    append_number(out, token.size());
    out += token;
  }
  return out;
}

std::optional<Greeting> read_greeting(std::string_view message) {
  Greeting out;
  const auto seconds = take_number(message);
  const auto bytes = take_number(message);
  const auto ends = take_number(message);
  if (!seconds || !bytes || !ends) return std::nullopt;
  out.cpu_seconds = std::bit_cast<double>(*seconds);
  out.bytes = *bytes;
  for (uint64_t i = 0; i < *ends; ++i) {
    const auto id = take_number(message);
    if (!id) return std::nullopt;
    out.vocabulary.ends.push_back(static_cast<TokenId>(*id));
  }
  while (!message.empty()) {
    const auto size = take_number(message);
    if (!size || *size > message.size()) return std::nullopt;
    out.vocabulary.tokens.emplace_back(message.substr(0, *size));
    message.remove_prefix(*size);
  }
  return out;
}

bool TrialProcess::start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);  // connections of clients above all
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  // In a group of its own, so that Ctrl-C does not end it while the server finishes its requests.
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> words;
  for (const std::string& word : config_.trial_command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  char* no_environment[] = {nullptr};
  const int failed = posix_spawn(&pid_, words[0], &actions, &attributes, words.data(), no_environment);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(ends[1]);
  bool interrupted = false;
  {
    const std::lock_guard lock(mutex_);
    socket_ = ends[0];
    interrupted = interrupted_;
  }
  if (failed != 0) {
    log_error(fmt::format("the process that tries out grammars cannot start: {}", std::strerror(failed)));
    pid_ = -1;
    stop();
    return false;
  }
  return !interrupted && write_message(socket_, greeting_);
}

int TrialProcess::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (socket_ >= 0) close(std::exchange(socket_, -1));
  }
  if (pid_ < 0) return 0;
  int status = 0;
  kill(pid_, SIGKILL);  // says nothing to one that has ended by itself
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

CompileError TrialProcess::why_it_ended(int status) const {
  const auto too_much = [](std::string what) {
    return CompileError{CompileFault::kRefused,
                        fmt::format("to compile the grammar takes {}; it must be simpler: fewer or "
                                    "smaller repetitions, properties or values",
                                    what)};
  };
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF) {
    return too_much(fmt::format("more than {} s of CPU time", config_.trial_cpu_seconds));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoMemory) {
    return too_much(fmt::format("more than {} MiB of memory", config_.trial_bytes >> 20));
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) return too_much("too deep a recursion");
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    return {CompileFault::kBusy,
            "the process that tries out grammars was killed twice, maybe for lack of memory"};
  }
  return {CompileFault::kInternal,
          fmt::format("the process that tries out grammars has ended with status {}", status)};
}

bool TrialProcess::send(std::string_view grammar) {
  // It may have died since the last grammar.
  if (pid_ >= 0 && write_message(socket_, grammar)) return true;
  stop();
  if (start() && write_message(socket_, grammar)) return true;
  stop();
  return false;
}

std::optional<CompileError> TrialProcess::try_out(std::string_view grammar) {
  int status = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const bool sent = send(grammar);
    std::string answer;
    bool timed_out = false;
    if (sent && read_message(socket_, answer, kMaxAnswerBytes, kTimeoutMs, &timed_out)) {
      if (answer.empty()) return std::nullopt;
      return CompileError{CompileFault::kRefused, fmt::format("the grammar does not compile: {}", answer)};
    }
    status = stop();
    {
      const std::lock_guard lock(mutex_);
      if (interrupted_) return CompileError{CompileFault::kInterrupted, "the server is shutting down"};
    }
    if (timed_out) {
      return CompileError{CompileFault::kBusy,
                          "the grammar has not been compiled within a minute, on a machine that is busy"};
    }
    if (!sent)
      return CompileError{CompileFault::kInternal, "the process that tries out grammars cannot start"};
    // Killed, by an operator or for memory: another one may do it.
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) break;
  }
  return why_it_ended(status);
}

void TrialProcess::interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  if (socket_ >= 0) shutdown(socket_, SHUT_RDWR);
}

}  // namespace quire::grammar
