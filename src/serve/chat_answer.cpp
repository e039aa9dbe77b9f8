#include "serve/chat_answer.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "serve/auth.h"
#include "serve/json_text.h"

namespace quire::serve {
namespace {

constexpr size_t kIdBytes = 12;  // of a call's id, in hexadecimal

/// The model's own, or a random one of the length that its template wants.
std::string id_of(const answer::CallPiece& call, size_t length) {
  if (!call.id.empty()) return call.id;
  return length == 0 ? "call_" + random_hex(kIdBytes) : random_hex((length + 1) / 2).substr(0, length);
}

/// Appends `"reasoning_content":...,"reasoning":...,`: the older and the newer name of one thing.
void append_reasoning(std::string_view text, std::string& out) {
  if (text.empty()) return;
  for (const std::string_view name : {"reasoning_content", "reasoning"}) {
    fmt::format_to(std::back_inserter(out), "\"{}\":", name);
    append_json_string(out, text);
    out += ',';
  }
}

void append_function(const answer::CallPiece& call, std::string& out) {
  out += "\"function\":{";
  if (!call.name.empty()) {
    out += "\"name\":";
    append_json_string(out, call.name);
    out += ',';
  }
  out += "\"arguments\":";
  append_json_string(out, call.arguments);
  out += '}';
}

void append_id(const answer::CallPiece& call, size_t id_length, std::string& out) {
  out += "\"id\":";
  append_json_string(out, id_of(call, id_length));
  out += ",\"type\":\"function\",";
}

}  // namespace

ChatChoice::ChatChoice(const AnswerRules* rules) {
  if (rules == nullptr) return;
  include_reasoning_ = rules->include_reasoning;
  if (rules->format.tools != nullptr) id_length_ = rules->format.tools->id_length;
  parser_ = std::make_unique<answer::Parser>(rules->format, rules->tools);
}

answer::Piece ChatChoice::take(const engine::ChoiceOutput& news) {
  answer::Piece piece;
  if (parser_ == nullptr) {
    piece.content = news.text;
    return piece;
  }
  parser_->add(news.text, piece);
  if (news.finish) parser_->end(piece);
  if (!include_reasoning_) piece.reasoning.clear();
  return piece;
}

bool ChatChoice::ends_with_calls() const {
  return parser_ != nullptr && parser_->calls() > 0 && !parser_->inside_call();
}

void append_delta(const answer::Piece& piece, size_t id_length, std::string& out) {
  out += '{';
  append_reasoning(piece.reasoning, out);
  if (!piece.content.empty() || (piece.calls.empty() && piece.reasoning.empty())) {
    out += "\"content\":";
    append_json_string(out, piece.content);
    out += ',';
  }
  if (!piece.calls.empty()) {
    out += "\"tool_calls\":[";
    for (const answer::CallPiece& call : piece.calls) {
      fmt::format_to(std::back_inserter(out), "{{\"index\":{},", call.call);
      if (!call.name.empty()) append_id(call, id_length, out);
      append_function(call, out);
      out += "},";
    }
    out.back() = ']';
    out += ',';
  }
  out.back() = '}';
}

void ChatMessage::add(answer::Piece piece) {
  reasoning_ += piece.reasoning;
  content_ += piece.content;
  for (answer::CallPiece& call : piece.calls) {
    if (call.call == calls_.size()) {
      calls_.push_back(std::move(call));
    } else {
      calls_[call.call].arguments += call.arguments;
    }
  }
}

void ChatMessage::append(size_t id_length, std::string_view echo, std::string& out) const {
  out += "{\"role\":\"assistant\",";
  append_reasoning(reasoning_, out);
  out += "\"content\":";
  if (content_.empty() && echo.empty() && !calls_.empty()) {
    out += "null";
  } else {
    append_json_string(out, echo.empty() ? content_ : std::string(echo) + content_);
  }
  out += ",\"refusal\":null";
  if (!calls_.empty()) {
    out += ",\"tool_calls\":[";
    for (const answer::CallPiece& call : calls_) {
      out += '{';
      append_id(call, id_length, out);
      append_function(call, out);
      out += "},";
    }
    out.back() = ']';
  }
  out += '}';
}

}  // namespace quire::serve
