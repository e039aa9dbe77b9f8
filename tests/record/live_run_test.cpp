// What is told of a run while it goes on, against the scheduler that runs it.
#include "record/live_run.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <boost/json/parse.hpp>
#include <gtest/gtest.h>

#include "record/recorded_scheduler.h"
#include "tests/record/random_run.h"
#include "tests/support/sanitized.h"

namespace quire::record {
namespace {

namespace json = boost::json;

/// What a page makes of the messages.
struct Picture {
  void read(const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find("\n\n", at);
      ASSERT_NE(end, std::string::npos);
      ASSERT_EQ(text.compare(at, 6, "data: "), 0);
      take(json::parse(text.substr(at + 6, end - at - 6)).as_object());
      at = end + 2;
    }
  }
  void take(const json::object& message) {
    if (const auto* start = message.if_contains("start")) {
      *this = {};
      next = start->at("first").to_number<uint64_t>();
      own = start->at("own").as_bool();
      return;
    }
    if (const auto* list = message.if_contains("requests")) {
      for (const json::value& request : list->as_array()) {
        ASSERT_EQ(request.at("i").to_number<size_t>(), ids.size());
        ids.emplace_back(request.at("id").as_string());
      }
    }
    if (const auto* list = message.if_contains("steps")) {
      for (const json::value& step : list->as_array()) take_step(step.as_object());
    }
  }
  void take_step(const json::object& step) {
    if (!step.contains("after")) {
      EXPECT_EQ(step.at("n").to_number<uint64_t>(), next++);
    }
    last = step;
    std::set<int> no_cache;
    if (const auto* list = step.if_contains("blocks")) take_changes(list->as_array(), holders, cached);
    if (const auto* list = step.if_contains("groups")) {
      for (size_t i = 0; i < list->as_array().size(); i += 2) {
        const auto block = list->as_array()[i].to_number<int>();
        groups[block] = list->as_array()[i + 1].to_number<uint32_t>();
        EXPECT_TRUE(!own || holders.contains(block)) << "a tenant is told of block " << block;
      }
    }
    if (const auto* list = step.if_contains("host_blocks")) take_changes(list->as_array(), host, no_cache);
    EXPECT_TRUE(no_cache.empty());
    const auto* list = step.if_contains("looks");
    const json::array none;
    const json::array& told = list == nullptr ? none : list->as_array();
    for (size_t i = 0; i < told.size(); i += 4) {
      const auto seq = told[i].to_number<int>();
      const auto code = told[i + 1].to_number<int>();
      if (code == 255) {
        EXPECT_EQ(looks.erase(seq), 1U);
      } else {
        looks[seq] = code;
      }
    }
  }
  static void take_changes(const json::array& list, std::map<int, std::multiset<int>>& of,
                           std::set<int>& cached) {
    for (size_t i = 0; i < list.size(); i += 3) {
      const auto kind = list[i].to_number<int>();
      const auto block = list[i + 1].to_number<int>();
      const auto seq = list[i + 2].to_number<int>();
      if (kind == RunTimeline::kTake) {
        of[block].insert(seq);
        cached.erase(block);
      } else if (kind == RunTimeline::kEvict) {
        cached.erase(block);  // or it is held, and leaves the prefix index alone
      } else if (kind == RunTimeline::kIsCached) {
        cached.insert(block);
      } else {
        const auto own = of[block].find(seq);
        ASSERT_NE(own, of[block].end()) << "block " << block << " is not held by " << seq;
        of[block].erase(own);
        if (of[block].empty()) of.erase(block);
        if (kind == RunTimeline::kDropToCache) cached.insert(block);
      }
    }
  }

  uint64_t next = 0;
  bool own = false;
  std::vector<std::string> ids;
  std::map<int, std::multiset<int>> holders;
  std::map<int, std::multiset<int>> host;
  std::set<int> cached;
  std::map<int, int> looks;
  std::map<int, uint32_t> groups;  // of blocks; not in it: 0
  json::object last;
};

/// A run at random, watched from some moment on, for an operator and for a tenant.
class Watched {
 public:
  explicit Watched(uint64_t seed)
      : random_(seed), scheduler_(test::random_config(random_), nullptr), depth_(1 + seed % 3) {}

  void run() {
    for (int i = 0; i < 200; ++i) {
      arrive();
      if (next_ > 0 && random_.below(20) == 0) scheduler_.abort(random_.below(next_));
      if (random_.below(10) == 0) scheduler_.set_budget(static_cast<uint32_t>(random_.below(40)));
      if (open_.empty() && random_.below(watching_ ? 60 : 20) == 0) watch();
      step(Nanos{i} * 1'000'000);
      if (watching_ && random_.below(5) == 0) read();
    }
    while (!open_.empty()) commit();
    if (!watching_) watch();
    for (SeqId id = 0; id < next_; ++id) scheduler_.abort(id);
    read();
  }
  size_t compared() const { return compared_; }
  size_t in_second_group() const { return in_second_group_; }

 private:
  void arrive() {
    if (random_.below(2) != 0) return;
    control::SeqSpec spec = test::random_sequence(random_, next_++);
    tenants_[spec.id] = spec.tenant;
    if (!scheduler_.add(spec, "seq") || random_.below(4) != 0) return;
    spec.fork_of = spec.id;
    spec.id = next_++;
    tenants_[spec.id] = spec.tenant;
    scheduler_.add(spec, "fork");
  }
  void step(Nanos now) {
    if (open_.size() == depth_ || (!scheduler_.has_work() && !open_.empty())) commit();
    if (!scheduler_.has_work()) return;
    const uint64_t step = scheduler_.scheduler().next_step();
    control::StepPlan plan = scheduler_.plan(now);
    groups_[step] = groups_now();
    if (plan.empty()) return commit();
    open_.push_back(std::move(plan));
    if (depth_ == 1) commit();
  }
  void commit() {
    const control::StepPlan plan = std::move(open_.front());
    open_.pop_front();
    control::StepResult result;
    for (const control::SeqStep& step : plan.seqs) {
      control::SeqResult& seq = result.seqs.emplace_back();
      if (random_.below(60) == 0) seq.error = "failed";
      if (step.rows == control::LogitRows::kLast)
        seq.token.emplace().token = static_cast<TokenId>(random_.below(9));
    }
    for (const control::PromptStep& part : plan.prompts)
      result.prompts.emplace_back().rows.resize(part.end_row - part.first_row);
    scheduler_.commit(plan, std::move(result), 1);
  }
  void watch() {
    scheduler_.watch(&tap_, [](SeqId id) { return "named " + std::to_string(id); });
    watching_ = true;
  }

  void read() {
    RunTap::Batch batch = tap_.take();
    ASSERT_FALSE(batch.lost);
    if (batch.start) {
      live_ = std::make_unique<LiveRun>(std::move(*batch.start));
      live_->add(all_);
      live_->add(own_);
    }
    live_->take(batch);
    if (random_.below(10) == 0) {  // somebody joins later
      live_->remove(all_);
      live_->add(all_);
    }
    std::string text;
    all_.take(*live_, 5, false, text);
    picture_.read(text);
    std::string own;
    own_.take(*live_, 5, false, own);
    own_picture_.read(own);
    compare();
  }

  void compare() {
    const control::Scheduler& scheduler = scheduler_.scheduler();
    EXPECT_EQ(live_->state().running(), scheduler.running().size());
    EXPECT_EQ(live_->state().waiting(), scheduler.waiting().size());
    expect_blocks(scheduler);
    expect_groups(picture_);
    expect_groups(own_picture_);
    for (const std::string& id : own_picture_.ids) EXPECT_EQ(tenants_.at(std::stoull(id)), kTenant);
    EXPECT_TRUE(own_picture_.cached.empty());
    for (const char* hidden : {"held", "shared", "cached", "host", "budget"})
      EXPECT_FALSE(own_picture_.last.contains(hidden));
    if (scheduler_.has_work()) return;  // then the last step is still to be told
    EXPECT_TRUE(picture_.holders.empty());
    EXPECT_TRUE(picture_.host.empty());
    EXPECT_TRUE(picture_.looks.empty());
    EXPECT_TRUE(own_picture_.holders.empty());
    EXPECT_TRUE(own_picture_.looks.empty());
    EXPECT_EQ(picture_.cached.size(), live_->pool().cached);
    ++compared_;
  }
  void expect_blocks(const control::Scheduler& scheduler) {
    std::map<BlockId, size_t> held;
    uint32_t host = 0;
    for (const control::Sequence* seq : scheduler.running()) {
      for (uint32_t group = 0; group < seq->table.num_groups(); ++group) {
        for (const BlockId block : seq->table.blocks(group)) held[block] += block != kNoBlock ? 1 : 0;
      }
    }
    for (const control::Sequence* seq : scheduler.waiting())
      host +=
          static_cast<uint32_t>(std::ranges::count_if(seq->host, [](BlockId b) { return b != kNoBlock; }));
    held.erase(kNoBlock);
    std::set<BlockId> cached;
    for (uint32_t block = 0; block < scheduler_.cache().num_blocks(); ++block) {
      if (scheduler_.cache().contains(block) && !held.contains(block)) cached.insert(block);
    }
    const PoolNumbers now = live_->pool();
    EXPECT_EQ(now.held, held.size());
    EXPECT_EQ(now.shared, std::ranges::count_if(held, [](const auto& entry) { return entry.second > 1; }));
    EXPECT_EQ(now.cached, cached.size());
    EXPECT_EQ(now.host, host);
    live_->for_each_block([&](uint32_t block, const std::vector<size_t>& holders, bool is_cached) {
      EXPECT_EQ(cached.erase(block), is_cached ? 1U : 0U);
      EXPECT_EQ(holders.size(), held[block]);
      held.erase(block);
    });
    EXPECT_TRUE(held.empty());
    EXPECT_TRUE(cached.empty());
    for (const auto& [block, group] : groups_now()) EXPECT_EQ(live_->group_of(block), group);
  }
  /// By block, the K/V group of those that are held or in the prefix index.
  std::map<BlockId, uint32_t> groups_now() {
    std::map<BlockId, uint32_t> groups;
    const control::PrefixCache& cache = scheduler_.cache();
    for (uint32_t group = 0; group < cache.num_groups(); ++group) {
      for (const control::NodeId node : cache.nodes()) groups[cache.block(node, group)] = group;
      for (const control::Sequence* seq : scheduler_.scheduler().running()) {
        for (const BlockId block : seq->table.blocks(group)) groups[block] = group;
      }
    }
    groups.erase(kNoBlock);
    return groups;
  }
  /// The picture's blocks are in the groups in which they were when its last step was planned.
  void expect_groups(Picture& picture) {
    if (picture.last.empty()) return;
    const auto last = picture.last.at("n").to_number<uint64_t>();
    if (last == 0) return;  // nothing was planned since the view joined
    const std::map<BlockId, uint32_t>& groups = groups_.at(last);
    std::set<int> blocks = picture.cached;
    for (const auto& [block, holders] : picture.holders) blocks.insert(block);
    for (const int block : blocks) {
      const uint32_t group = groups.at(static_cast<BlockId>(block));
      EXPECT_EQ(picture.groups[block], group) << "block " << block;
      in_second_group_ += group;
    }
  }

  static constexpr uint64_t kTenant = 1;

  SplitMix64 random_;
  RecordedScheduler scheduler_;
  size_t depth_;
  SeqId next_ = 0;
  std::map<SeqId, uint64_t> tenants_;
  std::deque<control::StepPlan> open_;
  std::map<uint64_t, std::map<BlockId, uint32_t>> groups_;  // by step, when it was planned
  bool watching_ = false;
  RunTap tap_;
  LiveView all_;
  LiveView own_{kTenant};
  std::unique_ptr<LiveRun> live_;
  Picture picture_;
  Picture own_picture_;
  size_t compared_ = 0;
  size_t in_second_group_ = 0;  // blocks, over all comparisons
};

TEST(LiveRun, IsTheRunAsTheSchedulerHasIt) {
  size_t compared = 0;
  size_t in_second_group = 0;
  for (uint64_t seed = 1; seed <= (test::kSanitized ? 60 : 300); ++seed) {
    SCOPED_TRACE(seed);
    Watched watched(seed);
    watched.run();
    if (testing::Test::HasFailure()) return;
    compared += watched.compared();
    in_second_group += watched.in_second_group();
  }
  EXPECT_GE(compared, test::kSanitized ? 60U : 300U) << "moments at which nothing ran";
  EXPECT_GE(in_second_group, test::kSanitized ? 200U : 1000U);
}

TEST(RunTap, DropsWhatNobodyTakesAndSaysSo) {
  control::SchedulerConfig config;
  config.num_blocks = 64;
  config.max_model_len = 100;
  RecordedScheduler scheduler(config, nullptr);
  RunTap tap;
  scheduler.watch(&tap, [](SeqId) { return ""; });
  ASSERT_TRUE(tap.take().start.has_value());
  for (size_t i = 0; i <= RunTap::kMostWaiting; ++i) scheduler.abort(i);
  RunTap::Batch lost = tap.take();
  EXPECT_TRUE(lost.lost);
  size_t events = 0;
  lost.for_each([&](const RunEvent&) { ++events; }, [](BlockId, uint32_t) {});
  EXPECT_EQ(events, 0U);
  scheduler.watch(&tap, [](SeqId) { return ""; });
  scheduler.abort(9);
  EXPECT_FALSE(tap.take().lost);
}

TEST(RunTap, HasNoTokens) {
  control::SchedulerConfig config;
  config.num_blocks = 64;
  config.max_model_len = 100;
  RecordedScheduler scheduler(config, nullptr);
  RunTap tap;
  scheduler.watch(&tap, [](SeqId) { return ""; });
  control::SeqSpec spec;
  spec.id = 3;
  spec.prompt = {11, 12, 13};
  ASSERT_TRUE(scheduler.add(spec, "name"));
  size_t adds = 0;
  const auto take = [&](const RunEvent& event) {
    const auto* add = std::get_if<RunAdd>(&event);
    if (add == nullptr) return;
    ++adds;
    EXPECT_TRUE(std::ranges::equal(add->spec.prompt, std::vector<TokenId>(3, 0)));
    EXPECT_EQ(add->name, "name");
  };
  tap.take().for_each(take, [](BlockId, uint32_t) {});
  EXPECT_EQ(adds, 1U);
}

}  // namespace
}  // namespace quire::record
