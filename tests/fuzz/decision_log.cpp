#include <fstream>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "base/error.h"
#include "record/config_json.h"
#include "record/run_format.h"
#include "record/run_page.h"
#include "sim/replay.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {

void decision_log(std::string_view input) {
  // The first line is JSON like any other; what a fuzzer is good at comes after it.
  control::SchedulerConfig config;
  config.num_blocks = 12;
  config.block_size = 4;
  config.kv_windows = {0, 8};
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 16;
  config.max_model_len = 60;
  config.preemption = control::PreemptionKind::kSwap;
  config.num_host_blocks = 6;
  const std::string header = json::serialize(
      json::object{{record::kFormatKey, record::kFormat}, {"scheduler", record::to_json(config)}});
  // With a first line of its own or not (no record begins with a brace); as blocks, or records that get the
  // block whose checksums are right.
  const size_t end = input.starts_with('{') ? input.find('\n') : std::string_view::npos;
  const bool whole = end != std::string_view::npos;
  const std::string line = (whole ? std::string(input.substr(0, end)) : header) + "\n";
  const std::string_view rest = whole ? input.substr(end + 1) : input;
  const std::string head =
      rest.starts_with("QBLK") ? "" : record::block_head(0, 0, {}, rest, record::checksum(line, 0));
  const auto path = scratch_file("run.log", line + head + std::string(rest));
  for (const uint64_t first : {1, 3}) {
    try {
      record::PageOptions options;
      options.first = first;
      options.limits.steps = 50;
      static_cast<void>(record::make_page(path, sim::try_replay(path), options));
    } catch (const Error&) {
      continue;
    }
  }
}

}  // namespace quire::fuzz
