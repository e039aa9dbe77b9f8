#include <stdexcept>
#include <string>

#include "backend/sim/cost_file.h"
#include "base/error.h"
#include "sim/calibration.h"
#include "sim/step_log_file.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {
namespace {

using backend::StepWork;

constexpr StepWork kWorks[] = {
    {},
    {.decoding = 1, .decode_context = 500, .logit_rows = 1, .sampled_rows = 1},
    {.chunks = 2, .prefill_tokens = 3000, .chunk_squares = 5'000'000, .chunk_prefix = 9'000'000, .copies = 2},
    {.decoding = 64, .chunks = 1, .prefill_tokens = 1, .moved_blocks = 900}};

std::string head() {
  std::string columns;
  backend::StepRecord none;
  backend::StepRecord::for_each_field(none, [&](std::string_view name, auto&) {
    columns += (columns.empty() ? "\"" : ",\"") + std::string(name) + "\"";
  });
  return "{\"step_log\":" + std::to_string(backend::kStepLogVersion) + ",\"columns\":[" + columns + "]}\n";
}

}  // namespace

void cost_file(std::string_view input) {
  try {
    const backend::sim::CostFile file = backend::sim::read_cost_file(scratch_file("cost.json", input));
    const backend::sim::CostModel model = file.cost;
    const auto again = scratch_dir() / "again.json";
    backend::sim::write_cost_file(again, file);
    const backend::sim::CostModel same = backend::sim::read_cost_file(again).cost;
    for (const StepWork& work : kWorks) {
      const Nanos time = model.duration(work);
      if (time < 1 || model.duration(work, 7, 3) < 1) throw std::logic_error("a step that takes no time");
      if (same.duration(work) != time) throw std::logic_error("another time than was written");
      if (same.fitted()->extrapolates(work) != file.cost.extrapolates(work))
        throw std::logic_error("another range");
    }
    const control::CostHints hints = model.hints(64);
    if (hints.prefill_token < 1 || hints.decode_token < 1 || hints.swap_block < 1) {
      throw std::logic_error("a cost of nothing");
    }
    static_cast<void>(model.prefill_tokens_in(350'000'000));
    static_cast<void>(check_cost_file_for({.model = "fox", .machine = "2 cores"}, file, "cost.json", true));
  } catch (const Error&) {
    return;
  }
}

void step_log(std::string_view input) {
  // With a first line of its own or not.
  for (const std::string& before : {std::string(), head()}) {
    try {
      const sim::StepLogFile file =
          sim::read_step_log(scratch_file("steps.log", before + std::string(input)));
      for (const backend::StepRecord& record : file.records) {
        if (backend::sim::step_kind(record.work).empty()) throw std::logic_error("a step of no kind");
        if (record.work.tokens() < record.work.prefill_tokens) throw std::logic_error("tokens that overflow");
        if (record.compute + record.sample < record.compute) throw std::logic_error("times that overflow");
      }
    } catch (const Error&) {
      continue;
    }
  }
}

}  // namespace quire::fuzz
