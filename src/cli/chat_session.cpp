// The loop of a conversation: messages, answers, notices. Commands are in chat_commands.cpp.
#include "cli/chat_session.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/amounts.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/terminal.h"
#include "record/display_text.h"
#include "serve/chat_messages.h"
#include "startup/local_engine.h"

namespace quire::cli {
namespace {

const fmt::text_style kNote = fmt::fg(fmt::terminal_color::bright_black);
const fmt::text_style kComplaint = fmt::fg(fmt::terminal_color::yellow);

}  // namespace

void ChatTotals::add(const Generated& done) {
  ++answers;
  prompt_tokens += done.prompt_tokens;
  cached_tokens += done.cached_tokens;
  completion_tokens += done.completion_tokens;
  decoded_tokens += done.completion_tokens - done.first_tokens;
  prefill_time += done.first_token;
  decode_time += done.last_token - done.first_token;
}

ChatSession::ChatSession(startup::LocalEngine& local, const chat::ChatTemplates& templates,
                         MessageReader& reader, Options options)
    : local_(local),
      templates_(templates),
      reader_(reader),
      options_(std::move(options)),
      is_person_(is_terminal(stdin)),
      settings_(options_.sampling, local.defaults) {
  conversation_.set_system(options_.system);
}

void ChatSession::print(std::string_view text) const { print_now(text); }

void ChatSession::note(std::string_view text) const {
  if (is_person_) fmt::print(stderr, "{}\n", paint(stderr, text, kNote));
}

void ChatSession::complain(std::string_view text) {
  failed_ = true;
  fmt::print(stderr, "{}{}\n", is_person_ ? "" : "quire: ", paint(stderr, text, kComplaint));
}

void ChatSession::greet() const {
  note(fmt::format("{}, up to {} tokens. /help lists the commands; Ctrl-D ends.", options_.model,
                   with_commas(local_.config.scheduler.max_model_len)));
}

int ChatSession::run() {
  greet();
  bool was_interrupted = false;  // at the last check, so that a second Ctrl-C ends
  while (!over_) {
    const Input input = reader_.read();
    if (input.kind == Input::Kind::kEnd) break;
    if (input.kind == Input::Kind::kInterrupt) {
      if (std::exchange(was_interrupted, true)) break;
      note("Ctrl-C again or Ctrl-D ends.");
      continue;
    }
    was_interrupted = input.kind == Input::Kind::kDropped;
    if (was_interrupted || input.text.empty()) continue;
    try {
      const auto answers = totals_.answers;
      take(input.text);
      was_interrupted = totals_.answers > answers && last_ && last_->finish == control::FinishReason::kAbort;
    } catch (const Error& error) {
      if (!local_.engine->failure().empty()) throw;
      complain(error.what());
    }
  }
  return failed_ && !is_person_ ? 1 : 0;
}

void ChatSession::take(const std::string& text) {
  if (text.starts_with('/')) return obey(text);
  const Conversation before = conversation_;
  // A leading space sends a message that looks like a command.
  conversation_.ask(text.starts_with(" /") ? text.substr(1) : text);
  attempt_ = 0;
  try {
    if (!answer_last()) conversation_ = before;
  } catch (...) {
    conversation_ = before;
    throw;
  }
}

Expected<std::string> ChatSession::render(const Conversation& conversation, bool answers) const {
  serve::ChatPrompt prompt{.context = conversation.template_context()};
  prompt.context["add_generation_prompt"] = answers;
  return serve::render_chat(templates_, prompt);
}

engine::GenerationRequest ChatSession::next_request() {
  const auto prompt = render(conversation_, true);
  if (!prompt) throw Error(prompt.error().message);
  engine::GenerationRequest request =
      make_request(settings_.options(), local_.defaults, local_.tokenizer->encode(*prompt, false));
  request.sampling.seed += attempt_;
  const uint32_t longest = local_.config.scheduler.max_model_len;
  if (request.prompt.size() >= longest) {
    const char* help = conversation_.num_questions() > 1
                           ? "/forget removes the oldest question and its answer, /new begins anew"
                           : "it must be shorter";
    throw Error(
        fmt::format("the conversation would have {} tokens, and {} reads {}: the message was not taken. {}",
                    with_commas(request.prompt.size()), options_.model, with_commas(longest), help));
  }
  // A request beyond the room that is left would be refused, but here max-tokens is only a limit on answers.
  const auto room = static_cast<uint32_t>(longest - request.prompt.size());
  request.max_tokens = std::min(request.max_tokens.value_or(room), room);
  return request;
}

/// False if there was no answer at all, and the question should be removed.
bool ChatSession::answer_last() {
  engine::GenerationRequest request = next_request();
  const auto show = [safe = is_terminal(stdout)](std::string_view text) {
    print_now(safe ? terminal_text(text) : std::string(text));
  };
  std::optional<AnswerTerminal> quiet;
  if (is_person_) quiet.emplace();
  const Generated done = generate(*local_.engine, local_.clock, std::move(request), show,
                                  is_person_ ? &InterruptNote::interrupted() : nullptr);
  quiet.reset();
  print("\n");
  last_ = done;
  totals_.add(done);
  const bool stopped = done.finish == control::FinishReason::kAbort;
  if (stopped && done.texts.front().empty()) {
    note("(stopped before the answer began: the message is taken back)");
    return false;
  }
  conversation_.answer(done.texts.front());
  show_answer(done);
  return true;
}

void ChatSession::show_answer(const Generated& done) {
  if (done.finish == control::FinishReason::kAbort) {
    note("(stopped; what came is kept. /regen answers anew, /undo takes it back)");
  } else if (done.finish == control::FinishReason::kLength) {
    const uint32_t longest = local_.config.scheduler.max_model_len;
    if (done.prompt_tokens + done.completion_tokens >= longest) {
      note(
          fmt::format("(cut off: the conversation has the {} tokens that {} reads. /forget removes the "
                      "oldest question and its answer, /new begins anew)",
                      with_commas(longest), options_.model));
    } else {
      note(fmt::format("(cut off after {}: max-tokens)", record::plural(done.completion_tokens, "token")));
    }
  } else if (done.texts.front().empty()) {
    note("(an empty answer)");
  }
  if (options_.verbose) log_info(describe(done));
}

}  // namespace quire::cli
