#include "record/run_page.h"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serializer.hpp>
#include <fmt/format.h>

#include "base/file_error.h"
#include "record/config_json.h"
#include "record/display_text.h"
#include "record/leb128.h"
#include "record/page_source.h"
#include "record/run_index.h"
#include "record/run_summary.h"
#include "record/teller.h"

namespace quire::record {
namespace {

constexpr uint64_t kStepsBefore = 50;  // of a request

/// A stream of the differences between neighbours.
template <typename T>
std::string differences(const std::vector<T>& values) {
  std::string out;
  int64_t before = 0;
  for (const T value : values) {
    const auto now = static_cast<int64_t>(value);
    append_leb128(out,
                  zigzag(static_cast<int64_t>(static_cast<uint64_t>(now) - static_cast<uint64_t>(before))));
    before = now;
  }
  return base64(out);
}

json::value or_null(const std::optional<uint64_t>& value) {
  return value ? json::value(*value) : json::value();
}

/// Times as microseconds: a double holds them exactly.
json::value micros(const std::optional<Nanos>& value) {
  return value ? json::value(*value / 1000) : json::value();
}

std::vector<int64_t> micros(const std::vector<Nanos>& values) {
  std::vector<int64_t> out;
  for (const Nanos value : values) out.push_back(value / 1000);
  return out;
}

/// Ids as text: a double does not hold all of them.
std::string id_text(SeqId id) { return fmt::format("{}", id); }

json::object to_json(const SequenceStory& story, const std::string& tenant, const std::string& segments) {
  json::array waited;
  for (const auto& [reason, steps] : story.waited) {
    waited.push_back(json::array{static_cast<uint64_t>(reason), steps});
  }
  json::array lines;
  for (const StoryLine& line : story.lines) lines.push_back(json::array{line.from, line.to, line.text});
  json::object out{
      {"id", id_text(story.id)},
      {"name", valid_utf8(story.name)},
      {"prompt", story.prompt_tokens},
      {"max", story.max_tokens},
      {"arrived", story.arrived},
      {"admitted", or_null(story.admitted)},
      {"first", or_null(story.first_token)},
      {"ended", or_null(story.ended)},
      {"end", end_name(story)},
      {"end_text", end_text(story)},
      {"tenant", tenant},
      {"priority", story.priority},
      {"deadline_us", story.ttft_deadline / 1000},
      {"refused", story.refused},
      {"hit", story.hit_tokens},
      {"tokens", story.generated},
      {"preempted", story.preemptions},
      {"lost", story.lost_tokens},
      {"found", story.found_tokens},
      {"returned", story.returned_tokens},
      {"again", story.again_tokens},
      {"swapped_out", story.swapped_out},
      {"swapped_in", story.swapped_in},
      {"queued", story.queued},
      {"queued_us", story.queued_time / 1000},
      {"waited_us", story.waited_time / 1000},
      {"waited", std::move(waited)},
      {"waited_for", wait_name(story.waited_most_for())},
      {"ttft_us", micros(story.ttft)},
      {"total_us", micros(story.total)},
      {"lines", std::move(lines)},
      {"segments", base64(segments)},
  };
  if (story.fork_of) out["fork_of"] = id_text(*story.fork_of);
  return out;
}

/// Whether the log's own inputs lead to its decisions.
json::object to_json(const tl::expected<Replay, std::string>& again) {
  if (!again) return {{"same", false}, {"error", valid_utf8(again.error())}};
  json::object out{{"same", !again->differs() && (!again->recorded || again->same())},
                   {"decisions", again->decisions},
                   {"digest", fmt::format("{:016x}", again->digest)}};
  if (again->differs()) out["difference"] = difference_text(*again);
  return out;
}

json::object to_json(const RunStory& story) {
  json::array summary;
  for (const SummaryLine& line : summarize(story)) summary.push_back(json::array{line.what, line.text});
  const GivenToRequests given = given_to_requests(story);
  return {
      {"summary", std::move(summary)},
      {"late_begin", late_begin_text(story)},
      {"early_end", early_end_text(story)},
      {"tenants", given.tenants},
      {"priorities", given.priorities},
      {"deadlines", given.deadlines},
      {"steps", story.steps},
      {"last_step", story.last_step()},
      {"decisions", story.decisions},
      {"evictions", story.evictions},
      {"copies", story.copies},
      {"most_held", story.most_blocks_held},
      {"restored", story.restored},
      {"duration_us", story.duration / 1000},
      {"sequences", story.sequences.size()},
      {"ended_well", story.ended_well()},
  };
}

json::object to_json(const StepColumns& columns) {
  return {
      {"began_us", differences(micros(columns.began))},
      {"took_us", differences(micros(columns.took))},
      {"running", differences(columns.running)},
      {"waiting", differences(columns.waiting)},
      {"prefill", differences(columns.prefill_tokens)},
      {"decode", differences(columns.decode_tokens)},
      {"held", differences(columns.held)},
      {"shared", differences(columns.shared)},
      {"cached", differences(columns.cached)},
      {"host", differences(columns.host)},
  };
}

/// The steps of a page, and the sequences whose stories it has.
struct PagePlan {
  uint64_t first = 1;
  uint64_t last = UINT64_MAX;
  std::optional<size_t> chosen;    // the request to show first: its number in the run
  std::unordered_set<SeqId> told;  // the sequences that are present in these steps
};

PagePlan plan_page(const std::filesystem::path& log, const PageOptions& options) {
  const RunIndex index = read_run_index(log);
  PagePlan plan;
  plan.first = std::max(options.first.value_or(1), index.steps_before + 1);
  if (options.last && *options.last <= index.steps_before) {
    throw file_error(log, fmt::format("the log begins with step {}, so it has none up to {}",
                                      index.steps_before + 1, *options.last));
  }
  if (options.request) {
    const auto found = std::ranges::find_if(
        index.sequences, [&](const auto& s) { return is_called(s.id, s.name, *options.request); });
    if (found == index.sequences.end()) throw file_error(log, no_such_request_text(index, *options.request));
    plan.chosen = static_cast<size_t>(found - index.sequences.begin());
    const bool long_run = index.steps - index.steps_before > options.limits.steps;
    if (!options.first && long_run)
      plan.first = std::max<uint64_t>(plan.first, found->added - std::min(found->added, kStepsBefore));
    plan.told.insert(found->id);
  }
  plan.last = options.last.value_or(UINT64_MAX);
  const uint64_t end =
      std::min(plan.last, plan.first + std::min(options.limits.steps, UINT64_MAX - plan.first));
  for (const IndexedSequence& s : index.sequences) {
    if (s.added <= end && (!s.ended || *s.ended + 1 >= plan.first)) plan.told.insert(s.id);
  }
  return plan;
}

/// Calls `take` with the JSON text, piece by piece, since it may have tens of megabytes.
void serialize(const json::object& data, const auto& take) {
  std::array<char, 65536> piece{};
  json::serializer serializer;
  serializer.reset(&data);
  while (!serializer.done()) take(std::string_view(serializer.read(piece.data(), piece.size())));
}

/// Within a script element only "<" can end it or begin a comment; in JSON it occurs within strings alone.
void append_script_text(std::string& out, const json::object& data) {
  constexpr std::string_view kEscaped = "\\u003c";
  size_t size = out.size() + kPageAfterData.size();
  serialize(data, [&](std::string_view piece) {
    size += piece.size() + static_cast<size_t>(std::ranges::count(piece, '<')) * kEscaped.size();
  });
  out.reserve(size);  // a text that grows would be there twice
  serialize(data, [&](std::string_view piece) {
    for (const char c : piece) {
      if (c == '<') {
        out += kEscaped;
      } else {
        out += c;
      }
    }
  });
}

}  // namespace

FileKind run_page_kind() {
  return {"page of quire explain", kPageBeforeData.substr(0, kPageBeforeData.find("</title>"))};
}

Page make_page(const std::filesystem::path& log,
               const std::optional<tl::expected<Replay, std::string>>& again, const PageOptions& options) {
  const PagePlan plan = plan_page(log, options);
  RunReader reader(log);
  RunStory story = begin_story(reader);
  const WhoseLines whose = [&](SeqId id, std::string_view) { return plan.told.contains(id); };
  Teller teller(story, whose);
  RunTimeline timeline = read_timeline(reader, plan.first, plan.last, options.limits, plan.chosen, &teller);
  teller.end();
  story.truncated = reader.truncated();
  TenantNames tenants;
  for (const SequenceStory& s : story.sequences) tenants.add(s.tenant);

  json::array requests;
  for (size_t i = 0; i < timeline.sequences.size(); ++i) {
    SequenceStory& sequence = story.sequences[timeline.sequences[i]];
    requests.push_back(to_json(sequence, tenants.name(sequence.tenant), timeline.segments[i]));
    sequence.lines = {};  // the page has them now, and of a long run they are most of its memory
    timeline.segments[i] = {};
  }
  json::object data{
      {"log", valid_utf8(log.filename().string())},
      {"config", to_json(story.config)},
      {"run", to_json(story)},
      {"check", again ? json::value(to_json(*again)) : json::value()},
      {"first", timeline.first},
      {"last", timeline.last},
      {"limited", timeline.limited},
      {"blocks_used", timeline.blocks_used},
      {"host_blocks_used", timeline.host_blocks_used},
      {"requests", std::move(requests)},
      {"columns", to_json(timeline.columns)},
      {"causes", json::array(timeline.causes.begin(), timeline.causes.end())},
      {"events", base64(timeline.events)},
      {"blocks", base64(timeline.blocks)},
      {"host", base64(timeline.host)},
  };
  if (plan.chosen) {
    const auto shown = std::ranges::lower_bound(timeline.sequences, *plan.chosen);
    data["selected"] = static_cast<uint64_t>(shown - timeline.sequences.begin());
  }

  Page page;
  page.first = timeline.first;
  page.last = timeline.last;
  page.run_steps = story.steps;
  page.html = kPageBeforeData;
  append_script_text(page.html, data);
  page.html += kPageAfterData;
  return page;
}

}  // namespace quire::record
