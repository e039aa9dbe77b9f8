// The page's data: what it says of the pool is what the scheduler had; text of others stays text.
#include "record/run_page.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include <boost/json/parse.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "record/display_text.h"
#include "record/leb128.h"
#include "record/run_summary.h"
#include "sim/replay.h"
#include "tests/record/log_bytes.h"
#include "tests/record/random_run.h"
#include "tests/support/data.h"
#include "tests/support/sanitized.h"

namespace quire::record {
namespace {

using testing::HasSubstr;
using testing::Not;

std::filesystem::path log_of_page() {
  static const std::filesystem::path folder = test::temp_dir();
  return folder / "page.log";
}

/// The numbers of a stream.
class Stream {
 public:
  explicit Stream(std::string bytes) : bytes_(std::move(bytes)) {}
  bool at_end() const { return at_ == bytes_.size(); }
  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_.at(at_++));
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
  }
  int64_t signed_number() { return unzigzag(number()); }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

/// A pool as the page follows it.
struct Pool {
  std::map<uint32_t, std::map<int64_t, int>> holders;
  std::map<uint32_t, bool> cached;

  /// The changes of one step.
  void apply(Stream& stream) {
    int64_t block = 0;
    int64_t seq = 0;
    for (uint64_t left = stream.number(); left > 0; --left) {
      const uint64_t kind = stream.number();
      block += stream.signed_number();
      const auto id = static_cast<uint32_t>(block);
      if (kind == RunTimeline::kEvict || kind == RunTimeline::kIsCached) {
        EXPECT_EQ(cached[id], kind == RunTimeline::kEvict);
        EXPECT_EQ(held_by(id), 0U);
        cached[id] = kind == RunTimeline::kIsCached;
        continue;
      }
      seq += stream.signed_number();
      cached[id] = kind == RunTimeline::kDropToCache;
      int& count = holders[id][seq];
      count += kind == RunTimeline::kTake ? 1 : -1;
      EXPECT_GE(count, 0);
      if (count == 0) holders[id].erase(seq);
      if (kind == RunTimeline::kDropToCache) {
        EXPECT_EQ(held_by(id), 0U);
      }
    }
  }
  size_t held_by(uint32_t block) { return holders[block].size(); }
  uint32_t count(size_t at_least) const {
    return static_cast<uint32_t>(
        std::ranges::count_if(holders, [&](const auto& each) { return each.second.size() >= at_least; }));
  }
  uint32_t num_cached() const {
    return static_cast<uint32_t>(std::ranges::count_if(cached, [](const auto& each) { return each.second; }));
  }
};

RunTimeline timeline_of(uint64_t first = 1, uint64_t last = UINT64_MAX, const TimelineLimits& limits = {}) {
  RunReader reader(log_of_page());
  return read_timeline(reader, first, last, limits);
}

TEST(RunTimeline, ThePoolIsWhatTheSchedulerHad) {
  uint64_t cached = 0;
  uint64_t shared = 0;
  uint64_t host = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const test::RandomRun run = test::record_random_run(log_of_page(), seed);
    if (run.steps == 0) continue;
    const RunTimeline timeline = timeline_of();
    ASSERT_EQ(timeline.last, run.steps);
    ASSERT_EQ(timeline.columns.held.size(), run.steps);
    Stream blocks(timeline.blocks);
    Stream moved(timeline.host);
    Pool pool;
    Pool host_pool;
    for (uint64_t step = 0; step < run.steps; ++step) {
      pool.apply(blocks);
      host_pool.apply(moved);
      EXPECT_EQ(pool.count(1), timeline.columns.held[step]);
      EXPECT_EQ(pool.count(2), timeline.columns.shared[step]);
      EXPECT_EQ(pool.num_cached(), timeline.columns.cached[step]);
      EXPECT_EQ(host_pool.count(1), timeline.columns.host[step]);
      EXPECT_LE(host_pool.count(2), 0U);
      EXPECT_EQ(timeline.columns.prefill_tokens[step], run.states[step].prefill_tokens);
      EXPECT_EQ(timeline.columns.decode_tokens[step], run.states[step].decode_tokens);
      cached += timeline.columns.cached[step];
      shared += timeline.columns.shared[step];
      host += timeline.columns.host[step];
    }
    pool.apply(blocks);
    host_pool.apply(moved);
    EXPECT_TRUE(blocks.at_end());
    EXPECT_TRUE(moved.at_end());
    EXPECT_EQ(pool.count(1), run.stats.blocks_referenced);
    EXPECT_EQ(pool.count(2), run.stats.blocks_shared);
    EXPECT_EQ(host_pool.count(1), run.stats.host_blocks_used);
  }
  EXPECT_GT(cached, 1000U);
  EXPECT_GT(shared, 1000U);
  EXPECT_GT(host, 100U);
}

/// Against the scheduler at the end of runs of every length.
TEST(RunTimeline, CachedIsWhatTheSchedulerHadCached) {
  for (uint64_t seed = 0; seed < (test::kSanitized ? 3 : 12); ++seed) {
    const uint64_t steps = test::record_random_run(log_of_page(), seed).steps;
    std::vector<uint32_t> later;
    for (uint64_t most = 1; most <= steps; most += 3) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", steps " << most);
      const test::RandomRun run = test::record_random_run(log_of_page(), seed, most);
      const RunTimeline timeline = timeline_of();
      Stream blocks(timeline.blocks);
      Pool pool;
      for (uint64_t step = 0; step <= most; ++step) pool.apply(blocks);
      EXPECT_EQ(pool.num_cached(), run.stats.blocks_cached);
    }
  }
}

TEST(RunTimeline, APartIsThatPartOfTheWhole) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const uint64_t steps = test::record_random_run(log_of_page(), seed).steps;
    if (steps < 30) continue;
    const RunTimeline whole = timeline_of();
    const uint64_t first = 1 + seed % 17;
    const uint64_t last = steps - seed % 7;
    const RunTimeline part = timeline_of(first, last);
    EXPECT_EQ(part.first, first);
    EXPECT_EQ(part.last, last);
    EXPECT_FALSE(part.limited);
    Stream whole_blocks(whole.blocks);
    Stream part_blocks(part.blocks);
    Pool whole_pool;
    Pool part_pool;
    for (uint64_t step = 1; step < first; ++step) whole_pool.apply(whole_blocks);
    for (uint64_t step = first; step <= last; ++step) {
      whole_pool.apply(whole_blocks);
      part_pool.apply(part_blocks);
      const size_t i = step - first;
      EXPECT_EQ(part.columns.held[i], whole.columns.held[step - 1]);
      EXPECT_EQ(part.columns.cached[i], whole.columns.cached[step - 1]);
      EXPECT_EQ(part.columns.waiting[i], whole.columns.waiting[step - 1]);
      // The same holders, by their number in the whole run.
      for (const auto& [block, holders] : whole_pool.holders) {
        std::vector<size_t> expected;
        std::vector<size_t> got;
        for (const auto& [seq, count] : holders)
          expected.push_back(whole.sequences[static_cast<size_t>(seq)]);
        for (const auto& [seq, count] : part_pool.holders[block]) {
          got.push_back(part.sequences[static_cast<size_t>(seq)]);
        }
        EXPECT_EQ(got, expected);
      }
    }
  }
}

TEST(RunTimeline, EndsAtItsLimitsAndSaysSo) {
  const uint64_t steps = test::record_random_run(log_of_page(), 3).steps;
  ASSERT_GT(steps, 60U);
  const RunTimeline few = timeline_of(1, UINT64_MAX, {.steps = 25});
  EXPECT_EQ(few.last, 25U);
  EXPECT_TRUE(few.limited);
  EXPECT_EQ(few.columns.cached.size(), 25U);
  const RunTimeline small = timeline_of(10, UINT64_MAX, {.bytes = 2000});
  EXPECT_LT(small.last, steps);
  EXPECT_LT(small.blocks.size() + small.events.size(), 3000U);
  EXPECT_LT(timeline_of(1, UINT64_MAX, {.sequences = 5}).sequences.size(), 12U);
  EXPECT_THROW(timeline_of(steps + 1), Error);
  EXPECT_FALSE(timeline_of(1, steps).limited);
}

TEST(RunTimeline, PhasesAreOneAfterTheOther) {
  const test::RandomRun run = test::record_random_run(log_of_page(), 8);
  const RunTimeline timeline = timeline_of();
  std::vector<uint32_t> running(run.steps);
  std::vector<uint32_t> waiting(run.steps);
  ASSERT_EQ(timeline.segments.size(), timeline.sequences.size());
  for (const std::string& text : timeline.segments) {
    if (text.empty()) continue;  // refused, or gone before a step
    Stream stream(text);
    uint64_t step = stream.number();
    while (!stream.at_end()) {
      const uint64_t look = stream.number();
      const auto phase = static_cast<Phase>(look % 8);
      const bool waits = phase == Phase::kQueued || phase == Phase::kPreempted || phase == Phase::kSwapped;
      EXPECT_EQ(waits, look / 8 != 0);
      EXPECT_LE(stream.number(), timeline.sequences.size());
      EXPECT_LE(stream.number(),
                look / 8 == static_cast<uint64_t>(control::WaitReason::kOrder) ? timeline.causes.size() : 0U);
      for (uint64_t left = stream.number(); left > 0; --left, ++step)
        ++(waits ? waiting : running).at(step - 1);
    }
  }
  EXPECT_EQ(running, timeline.columns.running);
  EXPECT_EQ(waiting, timeline.columns.waiting);
}

// ---- the page ----

/// What its script reads.
json::object data_of(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"run\">";
  const size_t from = html.find(begin) + begin.size();
  return json::parse(std::string_view(html).substr(from, html.find("</script>", from) - from)).as_object();
}

TEST(RunPage, IsOneFileThatFetchesNothing) {
  test::record_random_run(log_of_page(), 3);
  const std::string html = make_page(log_of_page(), sim::try_replay(log_of_page())).html;
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  for (const char* outside :
       {"http:", "https:", "src=", "@import", "url(", "@STYLE@", "@SCRIPT@", "@DATA@"}) {
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  }
}

TEST(RunPage, HasTheRunInIt) {
  const test::RandomRun run = test::record_random_run(log_of_page(), 3);
  const Page page = make_page(log_of_page(), sim::try_replay(log_of_page()));
  const json::object data = data_of(page.html);
  EXPECT_EQ(page.run_steps, run.steps);
  EXPECT_EQ(data.at("first").to_number<uint64_t>(), 1U);
  EXPECT_EQ(data.at("last").to_number<uint64_t>(), run.steps);
  EXPECT_EQ(data.at("config").at("num_blocks").to_number<uint32_t>(), run.config.num_blocks);
  EXPECT_TRUE(data.at("check").at("same").as_bool());
  const json::array& requests = data.at("requests").as_array();
  EXPECT_EQ(requests.size(), tell_run(log_of_page()).sequences.size());
  EXPECT_EQ(requests[0].at("id"), "0");
  EXPECT_EQ(requests[0].at("name"), "seq-0");
  EXPECT_FALSE(requests[0].at("lines").as_array().empty());
}

TEST(RunPage, TextOfOthersStaysText) {
  const std::string hostile[] = {
      "</script><script>alert(1)</script>",
      "<!--<script>",
      "<img src=x onerror=alert(1)>",
      "\"}],\"x\":[{\"",
      "\xff\xfe\x80 not utf-8",
      "a\0b\x1b[31m\u202Ex",
      "@DATA@ @SCRIPT@",
      "\u2028\\u003c",
  };
  control::SchedulerConfig config;
  config.num_blocks = 4;
  config.max_model_len = 32;
  config.max_num_batched_tokens = 64;
  control::Scheduler scheduler(config);
  {
    RunWriter writer(log_of_page());
    writer.begin(config);
    scheduler.listen(&writer, &writer);
    for (SeqId id = 0; id < std::size(hostile); ++id) {
      control::SeqSpec spec;
      spec.id = id == 0 ? UINT64_MAX - 1 : id;
      spec.prompt = {1, 2, 3};
      spec.max_tokens = 1;
      writer.add(spec, hostile[id]);
      static_cast<void>(scheduler.add(spec));
    }
    writer.plan(1, 0);
    static_cast<void>(scheduler.plan());
    writer.flush();
  }
  const std::string html = make_page(log_of_page(), sim::try_replay(log_of_page())).html;
  const std::filesystem::path harmless = test::temp_dir() / "harmless.log";
  test::record_random_run(harmless, 3);
  const std::string plain = make_page(harmless, sim::try_replay(harmless)).html;
  const auto tags = [](std::string_view text) { return std::ranges::count(text, '<'); };
  EXPECT_EQ(tags(html), tags(plain)) << "the log has put a tag into the page";
  const json::object data = data_of(html);
  for (size_t i = 0; i < std::size(hostile); ++i) {
    EXPECT_EQ(data.at("requests").at(i).at("name").as_string(), valid_utf8(hostile[i]));
  }
  EXPECT_EQ(data.at("requests").at(0).at("id"), "18446744073709551614");
}

TEST(RunPage, BeginsWithTheRequestAskedFor) {
  const uint64_t steps = test::record_random_run(log_of_page(), 3).steps;
  PageOptions options;
  options.request = "seq-9";
  const json::object data = data_of(make_page(log_of_page(), sim::try_replay(log_of_page()), options).html);
  const auto chosen = data.at("selected").to_number<size_t>();
  EXPECT_EQ(data.at("requests").at(chosen).at("name"), "seq-9");
  options.request = "seq-999";
  EXPECT_THROW(make_page(log_of_page(), sim::try_replay(log_of_page()), options), Error);
  options.request = "9";
  options.first = steps - 5;
  options.last = steps - 2;
  const Page page = make_page(log_of_page(), sim::try_replay(log_of_page()), options);
  EXPECT_EQ(page.first, steps - 5);
  EXPECT_EQ(page.last, steps - 2);
}

/// Its whole life, whatever steps the page shows.
TEST(RunPage, HasTheWholeLifeOfTheRequestAskedFor) {
  const uint64_t steps = test::record_random_run(log_of_page(), 3).steps;
  ASSERT_GT(steps, 60U);
  const RunStory story = tell_run(log_of_page(), [](SeqId, std::string_view) { return true; });
  PageOptions options;
  options.request = "seq-0";
  options.first = steps - 3;
  options.last = steps;
  ASSERT_LT(*story.sequences[0].ended, steps - 10);
  for (const uint64_t sequences : {1U, 1000U}) {
    options.limits.sequences = sequences;
    const json::object data = data_of(make_page(log_of_page(), std::nullopt, options).html);
    EXPECT_TRUE(data.at("check").is_null());
    const json::object& chosen = data.at("requests").at(data.at("selected").to_number<size_t>()).as_object();
    EXPECT_EQ(chosen.at("name"), "seq-0");
    ASSERT_EQ(chosen.at("lines").as_array().size(), story.sequences[0].lines.size());
    for (size_t i = 0; i < story.sequences[0].lines.size(); ++i) {
      EXPECT_EQ(chosen.at("lines").at(i).at(2).as_string(), story.sequences[0].lines[i].text);
    }
  }
}

/// The story's lines about that step that have the text.
bool tells(const SequenceStory& story, uint64_t step, const std::string& text) {
  return std::ranges::any_of(story.lines, [&](const StoryLine& line) {
    return line.from <= step && step <= line.to && line.text.find(text) != std::string::npos;
  });
}

TEST(RunPage, GivesTheCausesThatTheStoriesGive) {
  std::map<std::string, int> grounds = {
      {"nothing left", 0}, {"admitted last", 0}, {"lowest", 0}, {"least", 0}};
  int orders = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {  // at depths 1 to 3
    SCOPED_TRACE(seed);
    const test::RandomRun run = test::record_random_run(log_of_page(), seed);
    if (run.steps == 0) continue;
    const RunTimeline timeline = timeline_of();
    const RunStory story = tell_run(log_of_page(), [](SeqId, std::string_view) { return true; });
    Stream events(timeline.events);
    for (uint64_t step = 1; step <= run.steps; ++step) {
      for (uint64_t left = events.number(); left > 0; --left) {
        const auto kind = static_cast<control::DecisionKind>(events.number());
        const uint64_t seq = events.number();
        events.number();
        events.number();
        const uint64_t cause = events.number();
        if (kind != control::DecisionKind::kPreempt) continue;
        const std::string& text = timeline.causes.at(cause - 1);
        EXPECT_TRUE(
            tells(story.sequences.at(timeline.sequences.at(seq - 1)), step, ": " + text + ". The K/V"))
            << step << ": " << text;
        for (auto& [words, count] : grounds) count += text.find(words) != std::string::npos ? 1 : 0;
      }
    }
    EXPECT_TRUE(events.at_end());
    // A line about a long wait has the numbers of its beginning.
    if (run.config.scheduling == control::SchedulingKind::kPriority ||
        run.config.scheduling == control::SchedulingKind::kFair) {
      continue;
    }
    for (size_t i = 0; i < timeline.sequences.size(); ++i) {
      Stream segments(timeline.segments[i]);
      if (segments.at_end()) continue;
      uint64_t step = segments.number();
      while (!segments.at_end()) {
        segments.number();
        segments.number();
        const uint64_t cause = segments.number();
        if (cause != 0) {
          ++orders;
          EXPECT_TRUE(tells(story.sequences.at(timeline.sequences[i]), step, timeline.causes.at(cause - 1)))
              << i << " in step " << step << ": " << timeline.causes.at(cause - 1);
        }
        step += segments.number();
      }
    }
  }
  for (const auto& [words, count] : grounds) EXPECT_GT(count, 3) << words;
  EXPECT_GT(orders, 100);
}

/// wait_name() is a switch without a default, so the compiler asks for the name of a new reason; the script
/// has the numbers.
TEST(RunPage, KnowsEveryWaitReason) {
  for (size_t i = 1; i < std::size(kWaitNames); ++i) {
    EXPECT_NE(wait_name(static_cast<control::WaitReason>(i)), "") << kWaitNames[i];
  }
  test::record_random_run(log_of_page(), 3);
  const std::string html = make_page(log_of_page(), std::nullopt).html;
  const size_t from = html.find("const Wait = {");
  ASSERT_NE(from, std::string::npos);
  const std::string_view numbers = std::string_view(html).substr(from, html.find('}', from) - from);
  EXPECT_EQ(std::ranges::count(numbers, ':'), static_cast<ptrdiff_t>(std::size(kWaitNames)));
  const RunStory story = tell_run(log_of_page());
  const json::object data = data_of(html);
  for (size_t i = 0; i < story.sequences.size(); ++i) {
    EXPECT_EQ(data.at("requests").at(i).at("waited_for").as_string(),
              wait_name(story.sequences[i].waited_most_for()));
  }
}

TEST(RunPage, SaysWhenTheRunIsAnother) {
  test::record_random_run(log_of_page(), 3);
  const test::LogParts parts = test::parts_of(log_of_page());
  // Another policy than the one that decided.
  const size_t policy = parts.line.find("\"victim\":");
  const size_t end = parts.line.find(',', policy);
  int differing = 0;
  for (const char* name : {"last", "priority", "least-progress"}) {
    std::string line = parts.line;
    line.replace(policy, end - policy, fmt::format("\"victim\":\"{}\"", name));
    const bool changed = line != parts.line;
    std::ofstream(log_of_page(), std::ios::binary) << test::log_of(line, parts.records, parts.index);
    const json::object check =
        data_of(make_page(log_of_page(), sim::try_replay(log_of_page())).html).at("check").as_object();
    // Its inputs may not even fit the other decisions.
    EXPECT_EQ(check.at("same").as_bool(), !check.contains("difference") && !check.contains("error"));
    EXPECT_TRUE(changed || check.at("same").as_bool());
    differing += check.at("same").as_bool() ? 0 : 1;
  }
  EXPECT_GT(differing, 0);
}

// ---- text ----

TEST(DisplayText, KeepsWhatIsValid) {
  EXPECT_EQ(valid_utf8("aé€😀"), "aé€😀");
  EXPECT_EQ(valid_utf8("a\xc0\xaf"), "a\uFFFD\uFFFD");
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(valid_utf8("\xf0\x9f\x98"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(DisplayText, ATerminalGetsNoControlCharacters) {
  EXPECT_EQ(printable("a\x1b[31m\n\u202E\u200Bé"), "a\\u{1b}[31m\\u{a}\\u{202e}\\u{200b}é");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\u{0}");
}

TEST(DisplayText, Base64) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
}

}  // namespace
}  // namespace quire::record
