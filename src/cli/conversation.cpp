#include "cli/conversation.h"

#include <algorithm>
#include <iterator>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/file_error.h"
#include "base/output_file.h"
#include "cli/terminal.h"
#include "serve/chat_messages.h"
#include "serve/fields.h"

namespace quire::cli {
namespace {

constexpr uint64_t kLargestFile = uint64_t{64} << 20;

std::string_view text_of(const json::value& message, std::string_view key) {
  const json::object* object = message.if_object();
  const json::value* value = object == nullptr ? nullptr : object->if_contains(key);
  const json::string* text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? std::string_view() : std::string_view(*text);
}

bool is_question(const json::value& message) { return text_of(message, "role") == "user"; }

json::value read_conversation(const std::filesystem::path& file) {
  return parse_json(read_file(file, kLargestFile), file);
}

json::array messages_of(const json::value& read, const std::filesystem::path& file) {
  const json::object* object = read.if_object();
  const json::value* inner = object == nullptr ? &read : object->if_contains("messages");
  if (inner == nullptr || !inner->is_array()) {
    throw file_error(file,
                     "is not a conversation: neither an array of messages nor an object with \"messages\"");
  }
  return inner->get_array();
}

}  // namespace

std::string_view Conversation::system() const {
  if (messages_.empty() || text_of(messages_.front(), "role") != "system") return {};
  return text_of(messages_.front(), "content");
}

void Conversation::set_system(std::string_view text) {
  if (first() > 0) messages_.erase(messages_.begin());
  if (!text.empty()) {
    messages_.insert(messages_.begin(), json::value{{"role", "system"}, {"content", text}});
  }
}

void Conversation::ask(std::string_view text) { messages_.push_back({{"role", "user"}, {"content", text}}); }

void Conversation::answer(std::string_view text) {
  messages_.push_back({{"role", "assistant"}, {"content", text}});
}

void Conversation::clear() {
  messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(first()), messages_.end());
}

bool Conversation::undo() {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(), is_question);
  if (last == messages_.rend()) return false;
  messages_.erase(std::prev(last.base()), messages_.end());
  return true;
}

bool Conversation::forget_first() {
  const auto begin = messages_.begin() + static_cast<std::ptrdiff_t>(first());
  const auto question = std::find_if(begin, messages_.end(), is_question);
  if (question == messages_.end()) return false;
  const auto next = std::find_if(std::next(question), messages_.end(), is_question);
  if (next == messages_.end()) return false;
  messages_.erase(begin, next);
  return true;
}

bool Conversation::take_answer_back() {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(), is_question);
  if (last == messages_.rend()) return false;
  messages_.erase(last.base(), messages_.end());
  return true;
}

bool Conversation::awaits_answer() const { return !messages_.empty() && is_question(messages_.back()); }

std::string Conversation::text() const {
  std::string text;
  const json::object context = template_context();
  for (const json::value& message : context.at("messages").get_array()) {
    const std::string_view role = text_of(message, "role");
    text += fmt::format("{}> ", role);
    text += terminal_text(text_of(message, "content"));
    text += text.ends_with('\n') ? "" : "\n";
  }
  return text;
}

size_t Conversation::num_questions() const {
  return static_cast<size_t>(std::count_if(messages_.begin(), messages_.end(), is_question));
}

json::object Conversation::template_context() const {
  const json::object body{{"messages", messages_}};
  serve::Fields fields(body);
  serve::ChatPrompt prompt = serve::read_chat_prompt(fields);
  if (const auto fault = fields.finish()) throw Error(fault->message);
  return prompt.context;
}

Conversation Conversation::load(const std::filesystem::path& file) {
  Conversation read;
  read.messages_ = messages_of(read_conversation(file), file);
  if (read.messages_.empty()) throw file_error(file, "is not a conversation: it has no messages");
  try {
    read.template_context();
  } catch (const Error& error) {
    throw file_error(file, error.what());
  }
  return read;
}

void Conversation::save(const std::filesystem::path& file, const std::string& model) const {
  // Written by hand with one message per line, so that the file is readable.
  std::string text =
      fmt::format("{{\n  \"model\": {},\n  \"messages\": [", json::serialize(json::string(model)));
  for (size_t i = 0; i < messages_.size(); ++i) {
    text += fmt::format("{}\n    {}", i == 0 ? "" : ",", json::serialize(messages_[i]));
  }
  constexpr mode_t kOwnersFile = 0600;
  replace_file(file, text + "\n  ]\n}\n", kOwnersFile);
}

bool is_saved_conversation(const std::filesystem::path& file) {
  try {
    const json::value read = read_conversation(file);
    messages_of(read, file);
    const json::object* object = read.if_object();
    return object != nullptr && object->size() == 2 && object->contains("model");
  } catch (const Error&) {
    return false;
  }
}

}  // namespace quire::cli
