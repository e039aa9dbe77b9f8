// run: one request, in this terminal.
#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/generate.h"
#include "cli/idle_flags.h"
#include "cli/terminal.h"
#include "engine/beam_search.h"
#include "startup/local_engine.h"
#include "startup/model_files.h"

namespace quire::cli {
namespace {

struct RunOptions {
  startup::EngineOptions engine;
  SamplingOptions sampling;
  std::optional<std::string> prompt;
  std::vector<std::string> words;  // the same, as words after the model
  uint32_t n = 1;
  uint32_t best_of = 0;  // 0: n
  bool beam_search = false;
  std::optional<double> length_penalty;
  bool verbose = false;

  uint32_t sequences() const { return std::max(n, best_of); }
};

void check_search(const RunOptions& options) {
  if (options.best_of != 0 && options.best_of < options.n) {
    throw Error(fmt::format("--best-of: {} is less than -n ({})", options.best_of, options.n));
  }
  if (!options.beam_search) {
    if (options.length_penalty) throw Error("--length-penalty: needs --beam-search");
    return;
  }
  if (options.sequences() > engine::kMaxBeamWidth) {
    throw Error(fmt::format("{}: {} is more than {}, the widest beam",
                            options.best_of > 0 ? "--best-of" : "-n", options.sequences(),
                            engine::kMaxBeamWidth));
  }
  if (!options.sampling.stop.empty()) throw Error("--stop: is not supported with --beam-search");
}

/// A user at a terminal who has given no text would not see that the program waits for it.
std::string read_text() {
  if (is_terminal(stdin)) {
    fmt::print(stderr,
               "quire: reading the text from this terminal; end it with Enter and Ctrl-D (quire run MODEL "
               "TEXT takes it from the command line)\n");
  }
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

int run_once(RunOptions& options) {
  check_search(options);
  if (!options.words.empty()) options.prompt = fmt::format("{}", fmt::join(options.words, " "));
  if (!options.verbose) set_log_level(LogLevel::kWarning);
  startup::LocalEngine local(options.engine, startup::model_name(options.engine.model.model));
  const std::string text = options.prompt ? *options.prompt : read_text();
  engine::GenerationRequest request =
      make_request(options.sampling, local.defaults, local.prompt_tokens(text));
  request.n = options.n;
  request.best_of = options.best_of;
  request.beam_search = options.beam_search;
  request.length_penalty = options.length_penalty.value_or(1.0);
  if (options.n == 1) {
    const bool seen = is_terminal(stdout);
    const auto show = [seen](std::string_view piece) {
      print_now(seen ? terminal_text(piece) : std::string(piece));
    };
    const Generated done = generate(*local.engine, local.clock, std::move(request), show);
    if (seen) print_now("\n");
    if (options.verbose) log_info(describe(done));
    return 0;
  }
  const Generated done = generate(*local.engine, local.clock, std::move(request), [](std::string_view) {});
  for (uint32_t i = 0; i < options.n; ++i) {
    print_now(fmt::format("{}--- {} of {} ---\n{}\n", i == 0 ? "" : "\n", i + 1, options.n, done.texts[i]));
  }
  if (options.verbose) log_info(describe(done));
  return 0;
}

}  // namespace

void add_run(const Flags& app, Command& run) {
  auto options = std::make_shared<RunOptions>();
  const Flags command = app.add_command("run", "Continue a text, on standard output");
  const Flag prompt =
      command
          .add_option(
              "-p,--prompt", options->prompt,
              "The text, if it does not follow the model; empty: start from BOS. Default: standard input")
          .value_name("TEXT")
          .may_be_empty();
  command.add_flag("-v,--verbose", options->verbose, "Log what is loaded and how fast it runs");
  command.add_option("-n", options->n, "Number of answers, printed one after the other")
      .show_default()
      .range(1, 1024)
      .value_name("N");
  command
      .add_option("--best-of", options->best_of,
                  "Number of answers to sample; the -n most likely per token are shown")
      .range(1, 1024)
      .value_name("N");
  command.add_flag("--beam-search", options->beam_search,
                   "Beam search instead of sampling: the -n most likely of a beam of --best-of");
  command
      .add_option("--length-penalty", options->length_penalty,
                  "A beam's logprob is divided by its length to this power (default 1)")
      .number_range(-10, 10)
      .value_name("X");
  add_sampling_options(command, options->sampling);
  add_engine_options(command, options->engine);
  command.add_option("text", options->words, "The text to continue; several words are joined by a space")
      .value_name("TEXT")
      .may_be_empty()
      .excludes(prompt);
  const Flag at_once = command.find("--max-num-seqs").show_default("as many as -n or --best-of");
  command.callback([options, command, at_once, &run] {
    if (!at_once.is_given()) options->engine.max_num_seqs = options->sequences();
    refuse_idle_engine_flags(command, options->engine,
                             {.choices = options->sequences(), .one_request = true});
    refuse_idle_sampling(command, options->sampling, options->beam_search);
    run = [options] { return run_once(*options); };
  });
}

}  // namespace quire::cli
