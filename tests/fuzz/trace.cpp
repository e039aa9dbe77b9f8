#include "sim/trace.h"

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {

void trace(std::string_view input) {
  constexpr uint32_t kShort = 1 << 12;  // prompts that are made, in tokens
  for (const uint32_t speed : {1000U, 1U, 3'000'000'000U}) {
    try {
      sim::TraceOptions options;
      options.speed_thousandths = speed;
      const sim::Workload workload = sim::read_trace(scratch_file("trace", input), options);
      Nanos before = 0;
      for (size_t i = 0; i < workload.requests.size(); ++i) {
        const sim::SimRequest& request = workload.requests[i];
        if (request.arrival < before) throw std::logic_error("requests out of order");
        before = request.arrival;
        if (request.prompt_length > kShort || request.continues) continue;
        const std::vector<TokenId> prompt = workload.prompt(i);
        const auto outside = [&](TokenId token) {
          return token < 0 || static_cast<uint32_t>(token) >= workload.vocab_size;
        };
        if (prompt.size() != request.prompt_length || std::ranges::any_of(prompt, outside)) {
          throw std::logic_error("a prompt of other tokens");
        }
      }
    } catch (const Error&) {
      continue;
    }
  }
}

}  // namespace quire::fuzz
