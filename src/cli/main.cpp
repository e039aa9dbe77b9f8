#include <cstdio>
#include <exception>
#include <string_view>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/color.h>

#include "cli/commands.h"
#include "cli/terminal.h"

int main(int argc, char** argv) {
  CLI::App app("quire serves large language models to many users at once.", "quire");
  app.set_version_flag("--version", QUIRE_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  app.get_formatter()->column_width(38);
  app.footer("\nquire COMMAND --help says more about each command.");

  quire::cli::Command run;
  quire::cli::add_serve(app, run);
  quire::cli::add_run(app, run);
  quire::cli::add_chat(app, run);
  quire::cli::add_bench(app, run);
  quire::cli::add_simulate(app, run);
  quire::cli::add_explain(app, run);
  quire::cli::add_inspect(app, run);
  quire::cli::add_logits(app, run);
  quire::cli::add_tokenize(app, run);
  quire::cli::add_detokenize(app, run);
  quire::cli::add_render(app, run);
  quire::cli::add_convert(app, run);
  quire::cli::add_make_model(app, run);

  if (argc == 1) {
    fmt::print("{}", app.help());
    return 2;
  }
  const std::string_view first = argv[1];
  const auto knows = [&app](std::string_view name) {
    return !app.get_subcommands([name](CLI::App* each) { return each->get_name() == name; }).empty();
  };
  if (!first.starts_with('-') && !knows(first)) {
    fmt::print(stderr, "quire: there is no command '{}'; quire --help lists them\n", first);
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{} {}\n", quire::cli::paint(stderr, "quire:", fmt::fg(fmt::terminal_color::red)),
               error.what());
    return 1;
  }
}
