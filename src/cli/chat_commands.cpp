// The commands: messages that begin with '/'.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <system_error>

#include <fmt/format.h>

#include "base/amounts.h"
#include "base/error.h"
#include "base/file_error.h"
#include "base/output_file.h"
#include "base/trim.h"
#include "cli/chat_session.h"
#include "cli/did_you_mean.h"
#include "cli/terminal.h"
#include "cli/usage_error.h"
#include "record/display_text.h"
#include "startup/local_engine.h"

namespace quire::cli {

struct ChatSession::Command {
  std::vector<std::string_view> names;  // the first is shown
  std::string_view argument;            // as in the help; empty: it takes none
  std::string_view help;
  void (ChatSession::*action)(const std::string&);
};

const std::vector<ChatSession::Command>& ChatSession::all_commands() {
  static const std::vector<Command> kCommands = {
      {{"/help", "/?"}, "", "this list", &ChatSession::help},
      {{"/set"}, "[NAME VALUE]", "how answers are sampled; alone: shows all settings", &ChatSession::set},
      {{"/system"}, "[TEXT|none]", "the system prompt from now on; alone: shows it", &ChatSession::system},
      {{"/regen", "/retry", "/regenerate"},
       "",
       "another answer to the last question",
       &ChatSession::regenerate},
      {{"/undo"}, "", "removes the last question and its answer", &ChatSession::undo},
      {{"/forget"}, "", "removes the oldest question and its answer", &ChatSession::forget},
      {{"/new", "/clear", "/reset"},
       "",
       "starts a new conversation; the system prompt stays",
       &ChatSession::begin_anew},
      {{"/show", "/history"}, "", "the conversation so far", &ChatSession::show},
      {{"/save"}, "[FILE]", "writes it as JSON; alone: to the same file again", &ChatSession::save},
      {{"/load"}, "FILE", "continues a saved conversation", &ChatSession::load},
      {{"/stats"}, "", "tokens, speeds, and how full the K/V pool is", &ChatSession::stats},
      {{"/quit", "/exit", "/bye"}, "", "ends, as Ctrl-D does", &ChatSession::quit},
  };
  return kCommands;
}

namespace {

/// Expands "~/x" like a shell.
std::filesystem::path file_of(const std::string& text) {
  const char* home = std::getenv("HOME");
  if (!text.starts_with("~/") || home == nullptr) return text;
  return std::filesystem::path(home) / text.substr(2);
}

std::string trimmed(std::string_view text) { return std::string(trim(text, " \t\n")); }

double per_second(uint64_t count, Nanos time) {
  return time > 0 ? static_cast<double>(count) * 1e9 / static_cast<double>(time) : 0;
}

}  // namespace

std::vector<std::string> ChatSession::command_names() {
  std::vector<std::string> names;
  for (const Command& command : all_commands()) names.emplace_back(command.names.front());
  return names;
}

void ChatSession::obey(std::string_view text) {
  const std::string_view given = text.substr(0, text.find_first_of(" \t\n"));
  const std::string argument = trimmed(text.substr(given.size()));
  std::string name(given);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  std::vector<std::string_view> shown;
  std::vector<std::string_view> others;
  for (const Command& command : all_commands()) {
    shown.push_back(command.names.front());
    others.insert(others.end(), command.names.begin() + 1, command.names.end());
    if (std::find(command.names.begin(), command.names.end(), name) == command.names.end()) continue;
    if (command.argument.empty() && !argument.empty()) {
      throw Error(fmt::format("{} takes no argument", name));
    }
    return (this->*command.action)(argument);
  }
  std::string hint = did_you_mean(name, shown);
  if (hint.empty()) hint = did_you_mean(name, others);
  throw Error(fmt::format("there is no command {}: {} (with a space in front it is sent as a message)",
                          shortened(given), hint.empty() ? "/help lists them" : hint));
}

void ChatSession::help(const std::string&) {
  std::string text;
  for (const Command& command : all_commands()) {
    text += fmt::format("  {:<22} {}\n", fmt::format("{} {}", command.names.front(), command.argument),
                        command.help);
  }
  text +=
      "\nEnter sends. For several lines in one message end a line with \\, or press\n"
      "Alt-Enter; a pasted text is one message where the terminal marks it as pasted\n"
      "(most do; a plain console and screen do not). Up and Down bring earlier\n"
      "messages, Ctrl-R searches them, Tab completes commands. Ctrl-C stops an answer\n"
      "or drops what is written; a second one, or Ctrl-D, ends.\n"
      "/set NAME default takes a setting back.\n";
  print(text);
}

void ChatSession::set(const std::string& argument) {
  if (argument.empty()) return print(settings_.list());
  const std::string name = argument.substr(0, argument.find_first_of(" \t=\n"));
  std::string value = trimmed(argument.substr(name.size()));
  if (value.starts_with('=')) value = trimmed(value.substr(1));
  if (value.empty()) return print(settings_.describe(name) + '\n');
  settings_.set(name, value);
  note(settings_.describe(name));
}

void ChatSession::system(const std::string& argument) {
  if (argument.empty()) {
    const std::string_view text = conversation_.system();
    return print(fmt::format("{}\n", text.empty() ? "there is no system prompt" : terminal_text(text)));
  }
  const Conversation before = conversation_;
  conversation_.set_system(argument == "none" ? "" : argument);
  // Templates may refuse one.
  Conversation tried = conversation_;
  if (tried.num_questions() == 0) tried.ask("x");
  if (const auto prompt = render(tried); !prompt) {
    conversation_ = before;
    throw Error(prompt.error().message);
  }
  note(conversation_.system().empty() ? "no system prompt from now on" : "the system prompt from now on");
}

void ChatSession::save(const std::string& argument) {
  const std::filesystem::path file = argument.empty() ? file_ : file_of(argument);
  if (file.empty()) throw Error("/save takes the name of a file");
  if (conversation_.num_questions() == 0) throw Error("there is nothing to save yet");
  std::error_code none;
  // The user may have meant another name, and the existing file may be valuable.
  if (std::filesystem::exists(file, none)) {
    const bool ours = !file_.empty() && std::filesystem::equivalent(file, file_, none);
    if (!ours || !is_saved_conversation(file)) {
      throw file_error(file, ours ? "is not a saved conversation and is not overwritten: choose another name"
                                  : "exists already and is not overwritten: choose another name");
    }
  }
  const std::filesystem::path place = followed(file);
  if (std::filesystem::is_symlink(place, none)) {
    throw file_error(file, "cannot be written: its symbolic links form a loop");
  }
  conversation_.save(place, options_.model);
  file_ = file;
  note(fmt::format("saved in {}", file.string()));
}

void ChatSession::load(const std::string& argument) {
  if (argument.empty()) throw Error("/load takes the name of a file");
  const std::filesystem::path file = file_of(argument);
  conversation_ = Conversation::load(file);
  file_ = file;
  attempt_ = 0;
  const bool open = conversation_.awaits_answer();
  note(fmt::format("{} from {}; /show prints them{}",
                   record::plural(conversation_.messages().size(), "message"), file.string(),
                   open ? ", /regen answers the last" : ""));
  if (conversation_.num_questions() == 0) return;
  if (const auto prompt = render(conversation_); !prompt) {
    throw Error(fmt::format("{}: this model cannot continue it: {}", file.string(), prompt.error().message));
  }
}

void ChatSession::show(const std::string&) {
  if (conversation_.messages().empty()) return note("nothing has been said yet");
  print(conversation_.text());
}

void ChatSession::regenerate(const std::string&) {
  const Conversation before = conversation_;
  if (!conversation_.take_answer_back()) throw Error("there is no question to answer yet");
  ++attempt_;
  try {
    if (!answer_last()) conversation_ = before;
  } catch (...) {
    conversation_ = before;
    throw;
  }
  if (make_request(settings_.options(), local_.defaults, {}).sampling.greedy()) {
    note("(the temperature is 0, so every answer is the same)");
  }
}

void ChatSession::undo(const std::string&) {
  if (!conversation_.undo()) throw Error("there is no question to take back");
  note(fmt::format("{} left", record::plural(conversation_.num_questions(), "question")));
}

void ChatSession::forget(const std::string&) {
  if (!conversation_.forget_first()) {
    throw Error(conversation_.num_questions() == 0
                    ? "there is no question to forget"
                    : "there is no older question than the last; /new begins anew");
  }
  note(fmt::format("{} left", record::plural(conversation_.num_questions(), "question")));
}

void ChatSession::begin_anew(const std::string&) {
  conversation_.clear();
  file_.clear();
  attempt_ = 0;
  note("a new conversation");
}

void ChatSession::quit(const std::string&) { over_ = true; }

void ChatSession::stats(const std::string&) {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& what) {
    text += fmt::format("  {:<14} {}\n", name, what);
  };
  const uint32_t longest = local_.config.scheduler.max_model_len;
  uint64_t length = 0;
  if (conversation_.num_questions() > 0) {
    const auto prompt = render(conversation_);
    if (prompt) length = local_.tokenizer->encode(*prompt, false).size();
  }
  line("conversation",
       fmt::format("{}, {} of {} tokens", record::plural(conversation_.num_questions(), "question"),
                   with_commas(length), with_commas(longest)));
  if (totals_.answers == 0) {
    line("so far", "no answers");
  } else {
    line("so far", fmt::format("{}, {} tokens generated, {} tokens of prompts read",
                               record::plural(totals_.answers, "answer"),
                               with_commas(totals_.completion_tokens), with_commas(totals_.prompt_tokens)));
  }
  if (last_) line("last answer", describe(*last_));
  // There is no speed if nothing was computed, or everything at once.
  const double prompts = per_second(totals_.prompt_tokens - totals_.cached_tokens, totals_.prefill_time);
  const double answers = per_second(totals_.decoded_tokens, totals_.decode_time);
  std::string speeds = prompts > 0 ? fmt::format("prompts at {:.1f} tok/s", prompts) : "";
  if (answers > 0) speeds += fmt::format("{}answers at {:.1f} tok/s", speeds.empty() ? "" : ", ", answers);
  if (!speeds.empty()) line("on average", speeds);
  const control::StepStats step = local_.engine->stats().step;
  if (step.total_prefix_queried_tokens > 0) {
    line("prefix hits",
         fmt::format("{} of {} tokens of prompts ({:.0f} %)", with_commas(step.total_prefix_hit_tokens),
                     with_commas(step.total_prefix_queried_tokens),
                     percent(step.total_prefix_hit_tokens, step.total_prefix_queried_tokens)));
  }
  const uint32_t total = local_.config.scheduler.num_blocks;
  const uint32_t used = step.blocks_referenced + step.blocks_cached;
  line("K/V", fmt::format("{} of {} blocks of {} tokens in use ({:.0f} %), {} of them kept for prefix hits",
                          with_commas(used), with_commas(total), local_.config.scheduler.block_size,
                          percent(used, total), with_commas(step.blocks_cached)));
  print(text);
}

}  // namespace quire::cli
