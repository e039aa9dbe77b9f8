#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/cause.h"
#include "record/precedence.h"
#include "record/run_story.h"

namespace quire::record {

/// The sentences that a page needs for the causes of a run, in the words of the stories; each sentence once,
/// under a number from 1 on. Sequences by their number in the run. Not thread-safe.
class CauseSentences {
 public:
  /// Takes all sequences of the run in order, refused ones too.
  void add(uint64_t tenant);
  /// Takes the kFirst and kBehind causes of the run in order, `seq` being the sequence that each names.
  void take(const control::Cause& cause, size_t seq);

  /// Why the first in line comes before `seq` now. Called for every waiting sequence in every step, so it
  /// does no work unless the order has changed.
  uint32_t why_behind(size_t seq);
  /// Why the victim of a kVictim is preempted.
  uint32_t why_preempted(const control::Cause& victim) { return number_of(preemption_text(victim)); }

  uint64_t bytes() const { return bytes_; }
  const std::vector<std::string>& all() const { return sentences_; }
  std::vector<std::string> take_all() { return std::move(sentences_); }

 private:
  /// A sequence that was compared with the first in line, or was first itself.
  struct Compared {
    Precedence precedence;
    uint64_t at = 0;  // first_changes_ when `sentence` was made
    uint32_t sentence = 0;
  };
  /// Precedences with equal keys have the same sentence: kind, and values and tenants where it names them.
  using Key = std::tuple<uint32_t, int64_t, int64_t, uint64_t, uint64_t>;
  static Key key_of(const Precedence& of);
  uint32_t sentence_of(const Precedence& of);
  uint32_t number_of(std::string sentence);

  TenantNames names_;
  std::vector<uint64_t> tenants_;
  std::unordered_map<size_t, Compared> compared_;
  control::Standing first_;
  uint64_t first_tenant_ = 0;
  uint64_t first_changes_ = 1;
  uint32_t uncompared_ = 0;  // the sentence of all that were not compared
  std::map<Key, uint32_t> by_key_;
  std::unordered_map<std::string, uint32_t> by_text_;
  std::vector<std::string> sentences_;
  uint64_t bytes_ = 0;
};

}  // namespace quire::record
