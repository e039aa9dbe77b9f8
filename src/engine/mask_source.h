#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>

#include "backend/token_masks.h"
#include "base/ids.h"

namespace quire::engine {

/// Decides which tokens may come next in one sequence, by the tokens so far: a grammar, say. fill() and
/// accept() are called in different threads, but one after the other. What either throws ends the request.
class MaskSource {
 public:
  virtual ~MaskSource() = default;
  /// Forbids tokens (backend/token_masks.h); all bits are 1 before the call.
  virtual void fill(std::span<uint32_t> mask) = 0;
  /// The sequence's next token; each once, a stop token too.
  virtual void accept(TokenId token) = 0;

  // For sources that consist of others.
  /// The same for a text instead of a token; false if it is not allowed.
  virtual bool accept_text(std::string_view /*text*/) { return false; }
  /// Whether the answer may end here.
  virtual bool complete() const { return true; }
};

using MakeMaskSource = std::function<std::unique_ptr<MaskSource>()>;

/// The mask sources of the sequences that live. For the engine thread, except fill().
class MaskSources final : public backend::TokenMasks {
 public:
  /// The number of the source of a sequence, for SamplingParams::mask; never kNoMask.
  static uint32_t number(SeqId seq) { return static_cast<uint32_t>(seq & INT32_MAX); }

  /// Throws Error if a sequence with the same number lives: it would be 2^31 sequences older.
  void add(SeqId seq, std::unique_ptr<MaskSource> source);
  void remove(SeqId seq) noexcept { sources_.erase(number(seq)); }
  bool empty() const { return sources_.empty(); }
  void accept(SeqId seq, TokenId token) {
    if (sources_.empty()) return;
    if (const auto found = sources_.find(number(seq)); found != sources_.end()) found->second->accept(token);
  }
  /// Forbids nothing to a sequence that has ended: its token is dropped.
  void fill(uint32_t source, std::span<uint32_t> mask) override {
    if (const auto found = sources_.find(source); found != sources_.end()) found->second->fill(mask);
  }

 private:
  std::unordered_map<uint32_t, std::unique_ptr<MaskSource>> sources_;
};

}  // namespace quire::engine
