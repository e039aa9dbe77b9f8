#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "engine/mask_source.h"
#include "grammar/compiler.h"
#include "grammar/mask_allowance.h"
#include "tokenize/tokenizer.h"

namespace quire::serve {

/// The grammars of requests for one model. What it takes is made with the first one.
class Grammars {
 public:
  /// `tokenizer` must outlive it. `trial_command`: see grammar::CompilerConfig; empty: grammars are refused.
  Grammars(const tokenize::Tokenizer& tokenizer, uint32_t vocab_size, std::vector<TokenId> ends,
           std::vector<std::string> trial_command)
      : tokenizer_(tokenizer),
        vocab_size_(vocab_size),
        ends_(std::move(ends)),
        trial_command_(std::move(trial_command)) {}

  /// What the masks of a client's answers may take (HttpRequest::client). kQueueFull while it is used up. Any
  /// thread.
  Expected<std::shared_ptr<grammar::MaskAllowance>> allowance_of(uint64_t client);

  /// What makes the mask sources of a grammar that is kept; empty: it is not. Any thread; waits for nothing.
  engine::MakeMaskSource find(const std::string& grammar,
                              const std::shared_ptr<grammar::MaskAllowance>& allowance);

  /// Takes as long as to compile the grammar, if it is a new one; see grammar::Compiler. For one thread at a
  /// time.
  Expected<engine::MakeMaskSource> compile(const std::string& grammar,
                                           const std::shared_ptr<grammar::MaskAllowance>& allowance);

  /// Ends the compilation at work, and refuses all later ones. Any thread.
  void interrupt();

 private:
  const tokenize::Tokenizer& tokenizer_;
  const uint32_t vocab_size_;
  const std::vector<TokenId> ends_;
  const std::vector<std::string> trial_command_;
  std::unique_ptr<grammar::Compiler> owner_;
  std::atomic<grammar::Compiler*> compiler_ = nullptr;  // the same, once it is there
  std::atomic<bool> interrupted_ = false;
  std::mutex allowances_mutex_;  // guards the following member
  // Of the clients that have used some of theirs, or have an answer that may.
  std::unordered_map<uint64_t, std::shared_ptr<grammar::MaskAllowance>> allowances_;
  std::string unsupported_;  // why no grammar can be compiled, once known; of the thread that compiles
};

}  // namespace quire::serve
