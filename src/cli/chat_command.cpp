// chat: sets up a conversation in this terminal.
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/chat_session.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/terminal.h"
#include "startup/local_engine.h"
#include "startup/model_files.h"

namespace quire::cli {
namespace {

struct ChatOptions {
  startup::EngineOptions engine;
  SamplingOptions sampling;
  std::string system;
  std::string chat_template;
  bool no_history = false;
  bool verbose = false;
};

ChatHistory open_history(const ChatOptions& options) {
  const auto file = chat_history_file();
  if (options.no_history || !file) return {};
  try {
    return ChatHistory(*file);
  } catch (const Error& error) {
    log_warning(fmt::format("{}: messages are kept for this conversation only", error.what()));
    return {};
  }
}

std::unique_ptr<MessageReader> make_reader(const ChatOptions& options) {
  if (!is_terminal(stdin)) return std::make_unique<LineReader>("");
  if (!is_terminal(stdout)) return std::make_unique<LineReader>("> ");
  return std::make_unique<LineEditor>(open_history(options), ChatSession::command_names());
}

int chat(ChatOptions& options) {
  set_log_level(options.verbose ? LogLevel::kInfo : LogLevel::kWarning);
  options.engine.max_num_seqs = 1;
  const std::string& model = startup::checked_model(options.engine.model.model);
  const chat::ChatTemplates templates = startup::load_chat_templates(model, options.chat_template);
  // Before the weights are read.
  if (const auto chosen = templates.choose({}); !chosen) {
    throw Error(fmt::format("{}: {}", model, chosen.error().message));
  }
  startup::LocalEngine local(options.engine, startup::model_name(model));
  const auto reader = make_reader(options);
  ChatSession session(local, templates, *reader,
                      {.model = startup::model_name(model),
                       .system = options.system,
                       .sampling = options.sampling,
                       .verbose = options.verbose});
  return session.run();
}

}  // namespace

void add_chat(const Flags& app, Command& run) {
  auto options = std::make_shared<ChatOptions>();
  const Flags command =
      app.add_command("chat", "Talk to a model in this terminal; /help there lists the commands");
  command.add_option("--system", options->system, "System prompt").value_name("TEXT").may_be_empty();
  command
      .add_option("--chat-template", options->chat_template,
                  "Template file, or the name of one of the model's templates; default: its default template")
      .value_name("FILE|NAME");
  command.add_flag("--no-history", options->no_history,
                   "Do not read or keep the history of messages in $XDG_STATE_HOME/quire/chat_history "
                   "(~/.local/state/quire/chat_history)");
  command.add_flag("-v,--verbose", options->verbose, "Log what is loaded and how fast it runs");
  add_sampling_options(command, options->sampling);
  add_single_engine_options(command, options->engine);
  command.callback([options, command, &run] {
    refuse_idle_sampling(command, options->sampling, false);
    run = [options] { return chat(*options); };
  });
}

}  // namespace quire::cli
