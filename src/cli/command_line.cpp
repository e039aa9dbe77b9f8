#include "cli/command_line.h"

#include <algorithm>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "base/error.h"
#include "cli/help_formatter.h"
#include "cli/usage_error.h"
#include "cli/version.h"

namespace quire::cli {
namespace {

void add_commands(CLI::App& app, Command& run) {
  add_serve(app, run);
  add_run(app, run);
  add_chat(app, run);
  add_bench(app, run);
  add_simulate(app, run);
  add_explain(app, run);
  add_inspect(app, run);
  add_logits(app, run);
  add_perplexity(app, run);
  add_tokenize(app, run);
  add_detokenize(app, run);
  add_render(app, run);
  add_convert(app, run);
  add_make_model(app, run);
}

}  // namespace

CommandLine parse_command_line(std::vector<std::string> args) {
  CLI::App app("quire serves large language models to many users at once.", "quire");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", version());
  app.require_subcommand(1);
  app.fallthrough(false);
  CommandLine line;
  add_commands(app, line.run);
  // Set after the commands are added, which would otherwise inherit it.
  app.footer("\nquire COMMAND --help, or quire help COMMAND, says more about each command.");

  if (!args.empty() && args.front() == "help") {
    args.erase(args.begin());
    if (const std::string fault = help_error(app, args); !fault.empty()) {
      return {.run = {}, .help = {}, .error = fault};
    }
    if (args == std::vector<std::string>{"help"}) args.clear();
    args.emplace_back("--help");
  }
  const auto knows = [&app](const std::string& name) {
    return !app.get_subcommands([&](CLI::App* each) { return each->get_name() == name; }).empty();
  };
  if (!args.empty() && !args.front().starts_with('-') && !knows(args.front())) {
    return {.run = {}, .help = {}, .error = unknown_command(app, args.front())};
  }
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::CallForVersion& version) {
    return {.run = {}, .help = std::string(version.what()) + "\n", .error = {}};
  } catch (const CLI::Success&) {
    return {.run = {}, .help = app.help(), .error = {}};
  } catch (const CLI::ParseError& error) {
    return {.run = {}, .help = {}, .error = usage_error(app, error.what())};
  } catch (const Error& error) {
    return {.run = {}, .help = {}, .error = usage_error(app, error.what())};
  }
  return line;
}

int exit_status_of(std::string_view message) { return message.starts_with('-') ? 2 : 1; }

}  // namespace quire::cli
