#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "backend/token_masks.h"
#include "base/ids.h"
#include "base/rng.h"
#include "base/sampling_params.h"
#include "control/request.h"

namespace quire::test {

/// Masks that depend on all the tokens before: about a third of the vocabulary may come.
class HashMasks final : public backend::TokenMasks {
 public:
  /// The spec with the sequence's own number, if it has masks.
  control::SeqSpec number(control::SeqSpec spec) {
    if (spec.sampling.mask == kNoMask) return spec;
    spec.sampling.mask = static_cast<uint32_t>(spec.id);
    states_[spec.sampling.mask] = mix64(spec.sampling.seed ^ spec.sampling.choice);
    return spec;
  }
  bool empty() const { return states_.empty(); }
  void accept(SeqId id, TokenId token) {
    const auto found = states_.find(static_cast<uint32_t>(id));
    if (found != states_.end()) found->second = mix64(found->second ^ static_cast<uint32_t>(token));
  }
  void fill(uint32_t source, std::span<uint32_t> mask) override {
    const uint64_t state = states_.at(source);
    for (size_t word = 0; word < mask.size(); ++word) {
      mask[word] = 0;
      for (uint32_t bit = 0; bit < 32; ++bit) {
        if (mix64(state ^ (word * 32 + bit)) % 3 == 0) mask[word] |= 1U << bit;
      }
    }
  }

 private:
  std::map<uint32_t, uint64_t> states_;  // by source
};

}  // namespace quire::test
