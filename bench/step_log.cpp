// What a step log costs the engine's thread a step, where so many sequences decode: the count of the step's
// work, the reading of the clock and the handing over. The thread that writes is not counted.

#include "engine/step_log.h"

#include <cstdint>

#include <benchmark/benchmark.h>

#include "backend/step_work.h"
#include "base/clock.h"

namespace quire {
namespace {

void log_step(benchmark::State& state) {
  control::StepPlan plan;
  for (int64_t i = 0; i < state.range(0); ++i) {
    control::SeqStep& seq = plan.seqs.emplace_back();
    seq.first_position = 500;
    seq.rows = control::LogitRows::kLast;
    seq.tokens.push_back(1);
  }
  const SteadyClock clock;
  engine::StepLog log("/dev/null", "", uint64_t{1} << 30);
  for (auto _ : state) {
    backend::StepRecord record;
    for (int reading = 0; reading < 3; ++reading) record.whole += clock.now();  // as StepObserver does
    record.work = backend::work_of(plan);
    log.take(record);
  }
}
BENCHMARK(log_step)->Arg(1)->Arg(64)->Arg(256);

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
