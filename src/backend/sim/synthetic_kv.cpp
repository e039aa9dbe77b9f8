#include "backend/sim/synthetic_kv.h"

#include <algorithm>

#include <fmt/format.h>

namespace quire::backend::sim {

void SyntheticKv::clear(BlockId block) {
  std::fill_n(places_.begin() + static_cast<ptrdiff_t>(block) * block_size_, block_size_, Place{});
}

void SyntheticKv::clear_all() {
  std::ranges::fill(places_, Place{});
  std::ranges::fill(host_places_, Place{});
}

bool SyntheticKv::copy_block(const std::vector<Place>& from, BlockId source, std::vector<Place>& to,
                             BlockId target) {
  if ((size_t{source} + 1) * block_size_ > from.size() || (size_t{target} + 1) * block_size_ > to.size()) {
    return false;
  }
  std::copy_n(from.begin() + static_cast<ptrdiff_t>(source) * block_size_, block_size_,
              to.begin() + static_cast<ptrdiff_t>(target) * block_size_);
  return true;
}

std::string SyntheticKv::move_and_copy(const control::StepPlan& plan) {
  std::string wrong;
  const auto check = [&](bool done, const char* what, BlockId from, BlockId to) {
    if (!done && wrong.empty()) wrong = fmt::format("{} from block {} to {}: no such block", what, from, to);
  };
  for (const control::BlockMove& out : plan.moves_out) {
    check(copy_block(places_, out.device, host_places_, out.host), "a move out", out.device, out.host);
  }
  for (const control::BlockMove& in : plan.moves_in) {
    const bool done = copy_block(host_places_, in.host, places_, in.device);
    check(done, "a move in", in.host, in.device);
    if (!done) continue;
    std::fill_n(host_places_.begin() + static_cast<ptrdiff_t>(in.host) * block_size_, block_size_, Place{});
  }
  for (const control::BlockCopy& copy : plan.copies) {
    check(copy_block(places_, copy.from, places_, copy.to), "a copy", copy.from, copy.to);
  }
  return wrong;
}

}  // namespace quire::backend::sim
