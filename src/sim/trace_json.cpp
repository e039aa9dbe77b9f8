#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "control/request.h"
#include "sim/fixed_point.h"
#include "sim/trace_formats.h"
#include "sim/trace_lines.h"

namespace quire::sim {
namespace {

constexpr uint32_t kMooncakePiece = 512;
constexpr size_t kMostDepth = 8;

/// Milliseconds as an integer or a fraction, in nanoseconds. The steps are exact or rounded as IEEE 754 says,
/// none can be merged with another, so that every machine has the same time.
Nanos milliseconds(const JsonObject& object, std::string_view key) {
  constexpr auto kMost = static_cast<int64_t>(kMostSecondsOfTrace) * 1000;
  const json::value* value = object.find(key);
  if (value == nullptr || !value->is_double()) return object.integer(key, 0, kMost) * kNanosPerMillisecond;
  const double number = value->get_double();
  if (!(number >= 0 && number <= static_cast<double>(kMost))) {
    throw object.error(key, fmt::format("must be from 0 to {}", kMost));
  }
  const auto whole = static_cast<int64_t>(number);
  const double fraction = number - static_cast<double>(whole);
  const auto fraction_q32 = static_cast<int64_t>(fraction * 0x1.0p32);
  return whole * kNanosPerMillisecond +
         static_cast<Nanos>((int128{fraction_q32} * kNanosPerMillisecond + (int64_t{1} << 31)) >> 32);
}

std::optional<uint64_t> id_of(const json::value& value) {
  if (const uint64_t* number = value.if_uint64()) return *number;
  const int64_t* number = value.if_int64();
  if (number == nullptr || *number < 0) return std::nullopt;
  return static_cast<uint64_t>(*number);
}

/// A tenant is a text or a number.
std::string tenant_name(const JsonObject& object) {
  const json::value* value = object.find("tenant");
  if (const auto number = id_of(*value)) return std::to_string(*number);
  return object.string("tenant");
}

/// `where` is the file's name and line, which the JSON reader puts before what is wrong.
SimRequest parse_mooncake(std::string_view text, const std::string& where, TraceRequests& trace,
                          TenantNumbers& tenants) {
  const json::value value = parse_json(text, where, kMostDepth);
  const JsonObject object(value, where);
  SimRequest request;
  request.arrival = milliseconds(object, "timestamp");
  request.prompt_length = static_cast<uint32_t>(object.integer("input_length", 1, kMaxLength));
  request.output_length = static_cast<uint32_t>(object.integer("output_length", 1, kMaxLength));
  const json::value* ids = object.find("hash_ids");
  const json::array* list = ids == nullptr ? nullptr : ids->if_array();
  const uint64_t expected = (uint64_t{request.prompt_length} + kMooncakePiece - 1) / kMooncakePiece;
  if (list == nullptr || list->size() != expected) {
    throw Error(fmt::format("{}: key 'hash_ids': not a list of {} ids, one for {} tokens of the prompt each",
                            where, expected, kMooncakePiece));
  }
  request.pieces.reserve(list->size());
  for (const json::value& each : *list) {
    const auto id = id_of(each);
    if (!id) {
      throw Error(fmt::format("{}: key 'hash_ids': an id is not an integer from 0 to {}", where, UINT64_MAX));
    }
    request.pieces.push_back(*id);
  }
  const auto given = [&](std::string_view key, bool& has) {
    const bool here = object.has(key);
    has = has || here;
    return here;
  };
  if (given("ttft_deadline_ms", trace.has_deadlines)) {
    request.ttft_deadline = milliseconds(object, "ttft_deadline_ms");
    request.names_deadline = true;
  }
  if (given("priority", trace.has_priorities)) {
    request.priority =
        static_cast<int32_t>(object.integer("priority", -control::kMostPriority, control::kMostPriority));
  }
  request.tenant = tenants.of(given("tenant", trace.has_tenants) ? tenant_name(object) : "");
  return request;
}

// ---- ShareGPT ----

/// The elements of a JSON array, one at a time, so that a large file does not become one large value.
class ArrayElements {
 public:
  /// `text` begins with '[', after white space. Throws Error as next() does.
  ArrayElements(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {
    skip_space();
    ++at_;  // the bracket
  }
  /// The text of the next element; false at the end of the array.
  bool next(std::string_view& element) {
    skip_space();
    if (is_first_ && peek() == ']') return end();
    if (!is_first_) {
      if (peek() == ']') return end();
      if (peek() != ',') throw broken("',' or ']' is missing after a conversation");
      ++at_;
      skip_space();
    }
    is_first_ = false;
    if (peek() != '{') throw broken("a conversation is not an object");
    element_line_ = line_;
    const size_t begin = at_;
    skip_object();
    element = text_.substr(begin, at_ - begin);
    return true;
  }
  /// Where the last element begins.
  uint64_t line() const { return element_line_; }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    for (; at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos;
         ++at_) {
      line_ += text_[at_] == '\n' ? 1 : 0;
    }
  }
  bool end() {
    ++at_;
    skip_space();
    if (at_ != text_.size()) throw broken("there is something after the array");
    return false;
  }
  void skip_object() {
    size_t depth = 0;
    bool in_string = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      line_ += c == '\n' ? 1 : 0;
      if (in_string) {
        if (c == '\\') ++at_;
        in_string = c != '"';
        continue;
      }
      in_string = c == '"';
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) {
        ++at_;
        return;
      }
    }
    throw broken("the file ends within a conversation");
  }
  Error broken(std::string_view what) const {
    return Error(fmt::format("{}: line {}: {}", where_, line_, what));
  }

  std::string_view text_;
  std::string where_;
  size_t at_ = 0;
  uint64_t line_ = 1;
  uint64_t element_line_ = 1;
  bool is_first_ = true;
};

/// Characters of UTF-8 text.
uint64_t count_characters(std::string_view text) {
  return static_cast<uint64_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

class ConversationReader {
 public:
  ConversationReader(TraceRequests& trace, const TraceOptions& options) : trace_(trace), options_(options) {}

  /// Adds its turns, as far as requests are wanted.
  void read(std::string_view text, const std::string& where, uint32_t line) {
    const json::value value = parse_json(text, where, kMostDepth);
    const JsonObject object(value, where);
    const json::value* messages = object.find("conversations");
    if (messages == nullptr || !messages->is_array())
      throw object.error("conversations", "not a list of messages");
    uint64_t prompt = 0;  // of the turn that has no answer yet
    bool is_first = true;
    size_t number = 0;
    for (const json::value& each : messages->get_array()) {
      const JsonObject message(each, where, fmt::format("conversations[{}]", number++));
      const std::string from = message.string("from");
      const std::string words = message.string("value");
      const uint64_t length = length_of(words);
      if (from != "gpt" && from != "assistant" && from != "chatgpt" && from != "bard" && from != "bing") {
        prompt += length;
        continue;
      }
      if (prompt == 0 || length == 0) {  // an answer to nothing, or no answer
        ++unanswered_;
        continue;
      }
      if (trace_.requests.size() == options_.max_requests) return;
      add_turn(prompt, length, is_first, message, line);
      prompt = 0;
      is_first = false;
    }
    if (is_first) ++empty_;
  }
  uint64_t empty() const { return empty_; }
  uint64_t unanswered() const { return unanswered_; }

 private:
  uint64_t length_of(const std::string& words) const {
    if (options_.count_tokens) return options_.count_tokens(words);
    constexpr uint64_t kCharactersPerToken = 4;
    return (count_characters(words) + kCharactersPerToken - 1) / kCharactersPerToken;
  }
  void add_turn(uint64_t prompt, uint64_t answer, bool is_first, const JsonObject& message, uint32_t line) {
    SimRequest request;
    request.line = line;
    if (!is_first) {
      const SimRequest& before = trace_.requests.back();
      request.follows = static_cast<uint32_t>(trace_.requests.size() - 1);
      request.continues = true;
      prompt += before.prompt_length + before.output_length;
    }
    if (prompt + answer > kMaxLength) {
      throw message.error("value", fmt::format("the conversation is longer than {} tokens", kMaxLength));
    }
    request.prompt_length = static_cast<uint32_t>(prompt);
    request.output_length = static_cast<uint32_t>(answer);
    trace_.requests.push_back(std::move(request));
  }

  TraceRequests& trace_;
  const TraceOptions& options_;
  uint64_t empty_ = 0;
  uint64_t unanswered_ = 0;
};

}  // namespace

TraceRequests read_mooncake_trace(std::string_view text, const std::string& where,
                                  const TraceOptions& options) {
  TraceRequests trace;
  trace.piece_length = kMooncakePiece;
  TenantNumbers tenants;
  TextLines lines(text);
  const auto place = [&] { return fmt::format("{}: line {}", where, std::max<uint64_t>(1, lines.number())); };
  std::string_view line;
  while (trace.requests.size() < options.max_requests && lines.next(line)) {
    SimRequest request = parse_mooncake(line, place(), trace, tenants);
    request.line = static_cast<uint32_t>(lines.number());
    trace.requests.push_back(std::move(request));
  }
  if (trace.requests.empty()) throw Error(place() + ": the trace ends without a request");
  return trace;
}

TraceRequests read_conversations(std::string_view text, const std::string& where,
                                 const TraceOptions& options) {
  TraceRequests trace;
  trace.has_times = false;
  ConversationReader reader(trace, options);
  ArrayElements elements(text, where);
  std::string_view element;
  while (trace.requests.size() < options.max_requests && elements.next(element)) {
    reader.read(element, fmt::format("{}: line {}", where, elements.line()),
                static_cast<uint32_t>(elements.line()));
  }
  if (trace.requests.empty()) {
    throw Error(fmt::format("{}: line {}: the trace ends without a request", where, elements.line()));
  }
  if (!options.count_tokens) {
    trace.notes.push_back(fmt::format(
        "{}: a trace of texts: their tokens are taken to be a quarter of their characters", where));
  }
  if (reader.empty() + reader.unanswered() > 0) {
    trace.notes.push_back(
        fmt::format("{}: left out {} conversations without an answered message, and {} "
                    "answers that are empty or to nothing",
                    where, reader.empty(), reader.unanswered()));
  }
  return trace;
}

}  // namespace quire::sim
