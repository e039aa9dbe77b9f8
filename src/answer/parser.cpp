#include "answer/parser.h"

#include <algorithm>
#include <utility>

namespace quire::answer {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool is_blank(char c) { return kBlanks.find(c) != std::string_view::npos; }

size_t leading_blanks(std::string_view text) {
  return std::min(text.find_first_not_of(kBlanks), text.size());
}

/// How many bytes at the end of `text` may be the beginning of `mark`.
size_t begun_mark(std::string_view text, std::string_view mark) {
  for (size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size) {
    if (text.ends_with(mark.substr(0, size))) return size;
  }
  return 0;
}

bool is_beginning(std::string_view text, std::string_view mark) {
  return text.size() < mark.size() && mark.starts_with(text);
}

/// White space up to a mark is left out, but no more of it than this: a model may write it without end.
constexpr size_t kMostBlanks = 256;

/// The size of the text without the end that may belong to a mark, and white space before that.
size_t settled(std::string_view text, size_t held) {
  size_t end = text.size() - held;
  const size_t least = end - std::min(end, kMostBlanks);
  while (end > least && is_blank(text[end - 1])) --end;
  return end;
}

}  // namespace

Parser::Parser(const AnswerFormat& format, const Tools& tools) : format_(format), tools_(tools) {
  if (format_.reasoning == nullptr) return;
  at_ = format_.begins_in_reasoning ? At::kReasoning : At::kStart;
  trims_ = format_.begins_in_reasoning;
}

void Parser::add(std::string_view text, Piece& out) {
  pending_ += text;
  run(out, false);
}

void Parser::end(Piece& out) {
  run(out, true);
  if (at_ == At::kCall && begun_) return;  // it ends as it is
  if (at_ == At::kSection || at_ == At::kCall) {
    give_back(out);
    run(out, true);
  }
}

void Parser::run(Piece& out, bool last) {
  out_ = &out;
  bool goes_on = true;
  while (goes_on && !pending_.empty()) {
    switch (at_) {
      case At::kStart:
        goes_on = take_start(last);
        break;
      case At::kReasoning:
        goes_on = take_reasoning(out, last);
        break;
      case At::kContent:
        goes_on = take_content(out, last);
        break;
      case At::kSection:
        goes_on = take_section(out, last);
        break;
      case At::kCall:
        goes_on = take_call(out);
        break;
      case At::kEnd:
        pending_.clear();
        break;
    }
  }
  out_ = nullptr;
}

bool Parser::take_start(bool last) {
  const std::string_view open = format_.reasoning->open;
  const size_t blanks = leading_blanks(pending_);
  const std::string_view text = std::string_view(pending_).substr(blanks);
  if (blanks <= kMostBlanks && text.starts_with(open)) {
    pending_.erase(0, blanks + open.size());
    at_ = At::kReasoning;
    trims_ = true;
    return true;
  }
  if (!last && blanks <= kMostBlanks && is_beginning(text, open)) return false;
  at_ = At::kContent;
  return true;
}

bool Parser::take_reasoning(Piece& out, bool last) {
  if (trims_) {
    pending_.erase(0, leading_blanks(pending_));
    if (pending_.empty()) return false;
    trims_ = false;
  }
  const std::string_view close = format_.reasoning->close;
  const size_t at = pending_.find(close);
  if (at == std::string::npos) {
    const size_t end = last ? pending_.size() : settled(pending_, begun_mark(pending_, close));
    out.reasoning.append(pending_, 0, end);
    pending_.erase(0, end);
    return false;
  }
  out.reasoning.append(pending_, 0, settled(std::string_view(pending_).substr(0, at), 0));
  pending_.erase(0, at + close.size());
  at_ = At::kContent;
  trims_ = true;
  return true;
}

void Parser::say(std::string_view content, Piece& out) {
  out.content += content;
  if (leading_blanks(content) < content.size()) said_content_ = true;
}

/// Whether the answer begins with a call without a mark.
bool Parser::begins_bare(bool last, bool& undecided) {
  const char bare = format_.tools->bare;
  if (bare == 0 || said_content_ || calls_ > 0) return false;
  const size_t blanks = leading_blanks(pending_);
  if (blanks > kMostBlanks) {
    said_content_ = true;
    return false;
  }
  undecided = blanks == pending_.size() && !last;
  if (undecided || blanks == pending_.size() || pending_[blanks] != bare) return false;
  begin_section(blanks);
  return true;
}

bool Parser::take_content(Piece& out, bool last) {
  if (trims_) {
    pending_.erase(0, leading_blanks(pending_));
    if (pending_.empty()) return false;
    trims_ = false;
  }
  if (format_.tools == nullptr) {
    say(pending_, out);
    pending_.clear();
    return false;
  }
  bool undecided = false;
  if (begins_bare(last, undecided)) return true;
  if (undecided) return false;
  size_t at = std::string::npos;
  size_t length = 0;
  size_t held = 0;
  const auto look_for = [&](std::string_view mark, size_t own) {
    if (mark.empty()) return;
    const size_t found = pending_.find(mark);
    if (found < at) {
      at = found;
      length = own;
    }
    held = std::max(held, begun_mark(pending_, mark));
  };
  for (const std::string_view open : format_.tools->opens) look_for(open, open.size());
  look_for(format_.tools->call_open, 0);
  if (at != std::string::npos) {
    const size_t end = settled(std::string_view(pending_).substr(0, at), 0);
    say(std::string_view(pending_).substr(0, end), out);
    pending_.erase(0, end);
    begin_section(at - end + length);
    return true;
  }
  const size_t end = last ? pending_.size() : settled(pending_, held);
  // After calls, white space alone is no content.
  if (!last || calls_ == 0 || leading_blanks(pending_) < pending_.size()) {
    say(std::string_view(pending_).substr(0, end), out);
  }
  pending_.erase(0, end);
  return false;
}

/// `mark`: the bytes up to the end of what opens it.
void Parser::begin_section(size_t mark) {
  section_ = pending_.substr(0, mark);
  pending_.erase(0, mark);
  section_has_call_ = false;
  at_ = At::kSection;
}

/// What is held back is content, unless it only stands behind a call.
void Parser::give_back(Piece& out) {
  if (at_ == At::kSection && section_has_call_) section_.clear();
  say(std::exchange(section_, {}), out);
  at_ = At::kContent;
}

/// Takes a mark that stands between calls, or ends the section; false if there is none.
bool Parser::take_mark(Piece& out, bool last, bool& undecided) {
  const ToolFormat& tools = *format_.tools;
  const auto longest = [&](const std::vector<std::string_view>& marks) {
    size_t size = 0;
    for (const std::string_view mark : marks) {
      undecided = undecided || (!last && is_beginning(pending_, mark));
      if (pending_.starts_with(mark)) size = std::max(size, mark.size());
    }
    return size;
  };
  undecided = !last && !tools.call_open.empty() && is_beginning(pending_, tools.call_open);
  const size_t close = longest(tools.closes);
  const size_t mark = std::max({close, longest(tools.opens), longest(tools.between)});
  if (mark == 0) return false;
  undecided = false;
  section_.append(pending_, 0, mark);
  pending_.erase(0, mark);
  if (close == mark) give_back(out);
  return true;
}

/// Reads a call that begins with this character; null if none does.
std::unique_ptr<CallReader> Parser::reader_for(char first) const {
  if (first == '{') return read_json_call();
  switch (format_.tools->syntax) {
    case CallSyntax::kJson:
      return nullptr;
    case CallSyntax::kNamed:
      return first == '<' ? nullptr : read_named_call();
    case CallSyntax::kPythonic:
      return first == '<' ? nullptr : read_python_call();
    case CallSyntax::kXml:
      return pending_.starts_with(format_.tools->call_open) ? read_xml_call(tools_) : nullptr;
  }
  return nullptr;
}

bool Parser::take_section(Piece& out, bool last) {
  constexpr std::string_view kSeparators = " \t\r\n,;[]";
  bool undecided = false;
  if (take_mark(out, last, undecided)) return true;
  if (undecided) return false;
  const char c = pending_.front();
  if (kSeparators.find(c) != std::string_view::npos) {
    section_ += c;
    pending_.erase(0, 1);
    return true;
  }
  reader_ = reader_for(c);
  if (reader_ == nullptr) {
    give_back(out);
  } else {
    begun_ = false;
    at_ = At::kCall;
  }
  return true;
}

bool Parser::take_call(Piece& out) {
  if (reader_ == nullptr) {  // what follows a call that broke off is neither content nor a call
    pending_.clear();
    return false;
  }
  for (size_t i = 0; i < pending_.size(); ++i) {
    const CallReader::Step step = reader_->push(pending_[i], *this);
    if (step == CallReader::Step::kMore) {
      if (!begun_) section_ += pending_[i];
      continue;
    }
    if (step == CallReader::Step::kDone) {
      pending_.erase(0, i + 1);
      section_.clear();
      section_has_call_ = true;
      at_ = format_.one_call ? At::kEnd : At::kSection;
      return true;
    }
    pending_.erase(0, i);
    reader_ = nullptr;
    if (!begun_) give_back(out);
    return true;
  }
  pending_.clear();
  return false;
}

bool Parser::begin(std::string_view name, std::string_view id) {
  if (!tools_.contains(name)) return false;
  begun_ = true;
  section_.clear();
  out_->calls.push_back({calls_++, std::string(name), std::string(id), {}});
  return true;
}

void Parser::arguments(std::string_view json) {
  if (json.empty()) return;
  const uint32_t call = calls_ - 1;
  if (out_->calls.empty() || out_->calls.back().call != call) out_->calls.push_back({call, {}, {}, {}});
  out_->calls.back().arguments += json;
}

}  // namespace quire::answer
