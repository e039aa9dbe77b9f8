#pragma once

#include <functional>

// One function per command: adds it to the program's command line; if the command is given, `run` is set to
// its function. The result of `run` is the exit status.
namespace quire::cli {

class Flags;

using Command = std::function<int()>;

void add_serve(const Flags& app, Command& run);
void add_run(const Flags& app, Command& run);
void add_chat(const Flags& app, Command& run);
void add_bench(const Flags& app, Command& run);
/// Below `bench`.
void add_throughput(const Flags& bench, Command& run);
void add_bench_serve(const Flags& bench, Command& run);
void add_bench_ops(const Flags& bench, Command& run);
void add_simulate(const Flags& app, Command& run);
void add_calibrate(const Flags& app, Command& run);
void add_explain(const Flags& app, Command& run);
void add_inspect(const Flags& app, Command& run);
void add_plan(const Flags& app, Command& run);
void add_logits(const Flags& app, Command& run);
void add_perplexity(const Flags& app, Command& run);
void add_tokenize(const Flags& app, Command& run);
void add_detokenize(const Flags& app, Command& run);
void add_render(const Flags& app, Command& run);
void add_convert(const Flags& app, Command& run);
void add_make_model(const Flags& app, Command& run);

}  // namespace quire::cli
