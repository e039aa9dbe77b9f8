#pragma once

#include <algorithm>
#include <memory>
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
  uint32_t answers = 0;            // fewer than there are choices: the best of them, at the end
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  TenantQueues::Tenant* waits_as = nullptr;  // null where tenants have no bounds
  Nanos arrived = 0;
  std::vector<SequenceTimes> times;  // by choice; one for all beams
  bool beams_over = false;
  bool executor_failed = false;  // with one of its sequences
  bool touched = false;          // has news in this step
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
  /// There is nothing to tell before the end.
  bool silent() const { return !ended() && (beams != nullptr || answers < choices.size()); }
  uint32_t completion_tokens() const;
  /// Of the choice that has the most.
  uint32_t most_tokens() const;
  /// Leaves the best `answers` choices in the news, best first. REQUIRES: ended(), all their news is there.
  void keep_best();
};

}  // namespace quire::engine
