#include "record/run_story.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "record/run_state.h"
#include "record/teller.h"

namespace quire::record {

uint64_t SequenceStory::steps_waited() const {
  return std::accumulate(waited.begin(), waited.end(), uint64_t{0},
                         [](uint64_t sum, const auto& each) { return sum + each.second; });
}

control::WaitReason SequenceStory::waited_most_for() const {
  std::map<control::WaitReason, uint64_t> together;
  for (const auto& [reason, steps] : waited) {
    together[reason == control::WaitReason::kOrder ? control::WaitReason::kBlocks : reason] += steps;
  }
  const auto most = std::ranges::max_element(together, {}, [](const auto& each) { return each.second; });
  return most == together.end() ? control::WaitReason::kNone : most->first;
}

std::optional<RunStory::Behind> RunStory::behind(const SequenceStory& sequence) const {
  Tally tally;
  Behind out;
  line.add_first(sequence.in_order, tally);
  sequence.in_order.each([&](const StepRange& range) { out.steps += range.to - range.from + 1; });
  out.count = tally.count();
  if (out.count == 0) return std::nullopt;
  out.most = sequences.at(tally.take(1).front()).id;
  return out;
}

RunStory tell_run(const std::filesystem::path& path, const WhoseLines& whose_lines) {
  RunReader reader(path);
  RunStory story = begin_story(reader);
  Teller teller(story, whose_lines);
  follow_run(reader, teller);
  teller.end();
  story.truncated = reader.truncated();
  return story;
}

RunStory begin_story(const RunReader& reader) {
  RunStory story;
  story.config = reader.config();
  story.warning = reader.warning();
  story.first_part = reader.first_part();
  story.steps_before = reader.steps_before();
  story.is_single_part = reader.is_single_part();
  return story;
}

std::string_view end_name(const SequenceStory& story) {
  static constexpr std::string_view kEnds[] = {"stop", "length", "aborted", "error"};
  if (!story.refused.empty()) return "refused";
  return story.finish ? kEnds[static_cast<size_t>(*story.finish)] : "runs on";
}

std::string_view end_text(const SequenceStory& story) {
  if (!story.refused.empty()) return "refused";
  if (!story.finish) return "runs on";
  switch (*story.finish) {
    case control::FinishReason::kStop:
      return story.stop_string ? "stop string" : "stop token";
    case control::FinishReason::kLength:
      return "max_tokens reached";
    case control::FinishReason::kAbort:
      return "aborted";
    case control::FinishReason::kError:
      return "executor failed";
  }
  return "";
}

std::string TenantNames::name(uint64_t tenant) const {
  const auto found = numbers_.find(tenant);
  if (found == numbers_.end()) return "?";
  if (found->second < 26) return std::string(1, static_cast<char>('A' + found->second));
  return fmt::format("T{}", found->second + 1);
}

}  // namespace quire::record
