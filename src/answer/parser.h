#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answer/call_reader.h"
#include "answer/format.h"

namespace quire::answer {

/// More of one tool call.
struct CallPiece {
  uint32_t call = 0;  // its number in the answer
  std::string name;   // with the first piece of a call; otherwise empty
  std::string id;     // with the first piece, if the model gave one
  std::string arguments;
};

/// What a piece of an answer's text says.
struct Piece {
  std::string reasoning;
  std::string content;
  std::vector<CallPiece> calls;

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

/// What an answer may hold besides content.
struct AnswerFormat {
  const ToolFormat* tools = nullptr;  // null: calls are not looked for
  const ReasoningFormat* reasoning = nullptr;
  bool begins_in_reasoning = false;  // the prompt ends with the mark that opens it
  bool one_call = false;             // what follows the first call is left out
};

/// Divides the text of one answer, as it is generated, into reasoning, content and tool calls. However the
/// text is cut into pieces, the result is the same. Nothing of a call is told before its name is complete and
/// one of `tools`: until then it may turn out to be content. Not thread-safe; keeps references to the format
/// and the tools. It holds back what may be the beginning of a mark, white space at the end, and what may be
/// a call.
class Parser final : private CallSink {
 public:
  Parser(const AnswerFormat& format, const Tools& tools);

  void add(std::string_view text, Piece& out);
  /// The answer is complete: what is held back turns out to be content or reasoning, or was left out.
  void end(Piece& out);

  /// Calls that have begun.
  uint32_t calls() const { return calls_; }
  /// In the middle of a call that has begun.
  bool inside_call() const { return at_ == At::kCall && begun_; }

 private:
  enum class At : uint8_t {
    kStart,      // nothing but white space, where reasoning may begin
    kReasoning,  // inside the marks
    kContent,
    kSection,  // of calls, between two
    kCall,
    kEnd,  // all that follows is left out
  };

  // Each takes what it can of pending_; false if it needs more text.
  bool take_start(bool last);
  bool take_reasoning(Piece& out, bool last);
  bool take_content(Piece& out, bool last);
  bool take_section(Piece& out, bool last);
  bool take_mark(Piece& out, bool last, bool& undecided);
  std::unique_ptr<CallReader> reader_for(char first) const;
  bool take_call(Piece& out);

  void run(Piece& out, bool last);
  bool begins_bare(bool last, bool& undecided);
  void begin_section(size_t mark);
  void give_back(Piece& out);
  void say(std::string_view content, Piece& out);
  bool begin(std::string_view name, std::string_view id) override;
  void arguments(std::string_view json) override;

  const AnswerFormat format_;
  const Tools& tools_;
  At at_ = At::kContent;
  std::string pending_;                 // not yet understood
  std::string section_;                 // what is content if no call begins
  std::unique_ptr<CallReader> reader_;  // null: the call broke off
  Piece* out_ = nullptr;                // of the call of add() or end() that runs
  uint32_t calls_ = 0;
  bool begun_ = false;  // the call that is read
  bool section_has_call_ = false;
  bool trims_ = false;         // white space at this place is left out
  bool said_content_ = false;  // besides white space
};

}  // namespace quire::answer
