#pragma once

#include <functional>

namespace CLI {
class App;
}

// One function per command: adds it to the program's command line; if the command is given, `run` is set to
// its function. The result of `run` is the exit status.
namespace quire::cli {

using Command = std::function<int()>;

void add_serve(CLI::App& app, Command& run);
void add_run(CLI::App& app, Command& run);
void add_chat(CLI::App& app, Command& run);
void add_bench(CLI::App& app, Command& run);
/// Below `bench`.
void add_throughput(CLI::App& bench, Command& run);
void add_bench_serve(CLI::App& bench, Command& run);
void add_bench_ops(CLI::App& bench, Command& run);
void add_simulate(CLI::App& app, Command& run);
void add_explain(CLI::App& app, Command& run);
void add_inspect(CLI::App& app, Command& run);
void add_logits(CLI::App& app, Command& run);
void add_perplexity(CLI::App& app, Command& run);
void add_tokenize(CLI::App& app, Command& run);
void add_detokenize(CLI::App& app, Command& run);
void add_render(CLI::App& app, Command& run);
void add_convert(CLI::App& app, Command& run);
void add_make_model(CLI::App& app, Command& run);

}  // namespace quire::cli
