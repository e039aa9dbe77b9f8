#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "engine/mask_source.h"
#include "grammar/mask_allowance.h"
#include "grammar/vocabulary.h"

namespace quire::grammar {

struct CompilerConfig {
  /// The command that runs compile_trials() with the socket as its standard input and output. Its first word
  /// is the path of a program.
  std::vector<std::string> trial_command;
  double trial_cpu_seconds = 2;
  uint64_t trial_bytes = uint64_t{1} << 30;   // of memory, beyond what the process has before
  uint64_t kept_bytes = uint64_t{256} << 20;  // of compiled grammars that are kept for later requests
  uint64_t most_bytes = uint64_t{1} << 30;    // of those and of the ones in use
};

enum class CompileFault : uint8_t {
  kRefused,  // this grammar is not supported, or costs too much
  kBusy,     // too many grammars are in use; later it may work
  kInterrupted,
  kInternal,
};

struct CompileError {
  CompileFault fault;
  std::string message;  // one sentence without a full stop
};

/// Compiles grammars (in XGrammar's syntax, see ebnf.h) for one vocabulary and makes the mask sources of
/// sequences from them. A grammar that is not kept is first compiled by another process, which may use some
/// CPU time and memory and no more; what goes well there is done again here. That is faster than to pass the
/// result from one process to the other. Thread-safe; one grammar is compiled at a time.
class Compiler {
 public:
  /// Starts nothing: the process starts with the first grammar.
  Compiler(Vocabulary vocabulary, CompilerConfig config);
  ~Compiler();

  /// What makes mask sources of a grammar that is kept; empty: it is not. Never waits for a compilation. The
  /// result may be called in any thread and outlives this object. `allowance`: of the client; null: none. An
  /// answer whose masks take more than is common ends with backend::MaskRefused, once they have taken too
  /// much for one answer, or the allowance is used up.
  engine::MakeMaskSource find(const std::string& grammar, std::shared_ptr<MaskAllowance> allowance = nullptr);

  /// The same for any grammar. Waits for its turn and for the result, up to a minute. Lowers the priority of
  /// the calling thread meanwhile and afterwards.
  tl::expected<engine::MakeMaskSource, CompileError> compile(
      const std::string& grammar, std::shared_ptr<MaskAllowance> allowance = nullptr);

  /// Ends the compilation at work with kInterrupted, and all later ones.
  void interrupt();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether this build can compile grammars (CMake option QUIRE_XGRAMMAR).
bool can_compile();

/// The other process: answers over a socket, its standard input, until that is closed. The exit status.
int compile_trials();

}  // namespace quire::grammar
