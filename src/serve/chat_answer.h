#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answer/parser.h"
#include "engine/engine.h"

// The parts of a chat answer: content, reasoning, tool calls. Pure, but for the ids of calls, which are
// random.
namespace quire::serve {

/// How the text of an answer is divided.
struct AnswerRules {
  answer::AnswerFormat format;
  answer::Tools tools;
  bool include_reasoning = true;
  std::optional<uint32_t> thinking_budget;  // tokens
};

/// One choice of a chat answer. `rules` must outlive it.
class ChatChoice {
 public:
  /// Null: all is content.
  explicit ChatChoice(const AnswerRules* rules);

  /// What the new output says; the last one has what was held back. Reasoning that is not to be included is
  /// left out.
  answer::Piece take(const engine::ChoiceOutput& news);
  /// Its finish_reason is "tool_calls" and not "stop": it has calls, and the last is complete.
  bool ends_with_calls() const;
  size_t id_length() const { return id_length_; }

 private:
  bool include_reasoning_ = true;
  size_t id_length_ = 0;
  std::unique_ptr<answer::Parser> parser_;
};

/// Appends the delta of a streamed answer: {"content": ...}.
void append_delta(const answer::Piece& piece, size_t id_length, std::string& out);

/// A whole answer's message, from its pieces.
class ChatMessage {
 public:
  void add(answer::Piece piece);
  /// Appends {"role": "assistant", "content": ...}. `echo` comes before the content.
  void append(size_t id_length, std::string_view echo, std::string& out) const;

 private:
  std::string reasoning_;
  std::string content_;
  std::vector<answer::CallPiece> calls_;
};

}  // namespace quire::serve
