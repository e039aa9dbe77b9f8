#include "cli/command_line.h"

#include <utility>

#include "cli/flags.h"
#include "cli/usage_error.h"
#include "cli/version.h"

namespace quire::cli {
namespace {

void add_commands(const Flags& program, Command& run) {
  add_serve(program, run);
  add_run(program, run);
  add_chat(program, run);
  add_bench(program, run);
  add_simulate(program, run);
  add_calibrate(program, run);
  add_explain(program, run);
  add_inspect(program, run);
  add_plan(program, run);
  add_logits(program, run);
  add_perplexity(program, run);
  add_tokenize(program, run);
  add_detokenize(program, run);
  add_render(program, run);
  add_convert(program, run);
  add_make_model(program, run);
}

}  // namespace

CommandLine parse_command_line(std::vector<std::string> args) {
  Program program("quire", "quire serves large language models to many users at once.");
  const Flags flags = program.flags();
  program.set_version(version());
  flags.require_command();
  CommandLine line;
  add_commands(flags, line.run);
  // Set after the commands are added, which would otherwise inherit it.
  flags.footer("\nquire COMMAND --help, or quire help COMMAND, says more about each command.");

  if (!args.empty() && args.front() == "help") {
    args.erase(args.begin());
    if (const std::string fault = help_error(program.app(), args); !fault.empty()) {
      return {.run = {}, .help = {}, .error = fault};
    }
    if (args == std::vector<std::string>{"help"}) args.clear();
    args.emplace_back("--help");
  }
  if (!args.empty() && !args.front().starts_with('-') && !is_command(program.app(), args.front())) {
    return {.run = {}, .help = {}, .error = unknown_command(program.app(), args.front())};
  }
  const Program::Outcome outcome = program.parse(args);
  if (outcome.help.empty() && outcome.error.empty()) return line;
  return {.run = {}, .help = outcome.help, .error = outcome.error};
}

int exit_status_of(std::string_view message) { return message.starts_with('-') ? 2 : 1; }

}  // namespace quire::cli
