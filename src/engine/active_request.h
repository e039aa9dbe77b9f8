#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/beam_run.h"
#include "engine/choice.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/tenant_queues.h"

namespace quire::engine {

/// A request from its arrival until its last choice has ended.
struct ActiveRequest {
  RequestId id = 0;
  std::string name;
  OutputSink sink;
  std::vector<Choice> choices;
  std::unique_ptr<BeamRun> beams;  // instead of choices
  uint32_t answers = 0;  // how many answers it gives; if fewer than its choices: the best of them, at the end
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  TenantQueues::Tenant* waits_as = nullptr;  // null if tenants have no limits
  Nanos arrived = 0;
  std::vector<SequenceTimes> times;  // by choice; one entry for all beams
  bool beams_over = false;
  std::optional<Foretold> foretold;  // where there is a shadow
  bool wants_outlook = false;
  bool tells_outlook = false;    // with the next output, whatever it is
  std::optional<Nanos> due;      // when its first token was promised to come, from its arrival
  bool executor_failed = false;  // for one of its sequences, other than by its own fault
  bool touched = false;          // has output in this step
  RequestOutput news;

  ChoiceOutput& news_of(uint32_t index) {
    for (ChoiceOutput& choice : news.choices) {
      if (choice.index == index) return choice;
    }
    news.choices.emplace_back().index = index;
    return news.choices.back();
  }
  bool ended() const {
    if (beams != nullptr) return beams_over;
    return std::all_of(choices.begin(), choices.end(), [](const Choice& choice) { return choice.ended(); });
  }
  /// It has no output before the end.
  bool silent() const { return !ended() && (beams != nullptr || answers < choices.size()); }
  uint32_t completion_tokens() const;
  /// The number of tokens of its longest choice.
  uint32_t most_tokens() const;
  /// Keeps the best `answers` choices in the output, best first. REQUIRES: ended(), and all their output is
  /// there.
  void keep_best();
};

}  // namespace quire::engine
