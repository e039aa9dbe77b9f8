// check_invariants() tells what is broken: each test breaks one thing.
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/control/driver.h"

namespace quire::control {

/// Reaches into a scheduler to break it.
struct SchedulerVandal {
  explicit SchedulerVandal(Scheduler& scheduler)
      : pool(scheduler.pool_),
        running(scheduler.running_),
        waiting(scheduler.waiting_),
        by_slot(scheduler.by_slot_),
        free_slots(scheduler.free_slots_),
        free_host_blocks(scheduler.free_host_blocks_) {}

  Sequence& first() { return *running.front(); }
  BlockId block(uint32_t row) { return first().table.blocks()[row]; }

  BlockPool& pool;
  std::vector<Sequence*>& running;
  std::deque<Sequence*>& waiting;
  std::vector<Sequence*>& by_slot;
  std::vector<SlotId>& free_slots;
  std::vector<BlockId>& free_host_blocks;
};

namespace {

using test::a;
using test::b;
using test::c;
using test::d;
using test::Driver;
using test::text;
using testing::HasSubstr;

/// Two sequences run, the second in the middle of its prompt, and two wait for slots.
struct House {
  House() : driver(config()) {
    driver.add(a, text(6, 0), 10);
    driver.add(b, text(20, 100), 10);
    driver.add(c, text(9, 200), 10);
    driver.add(d, text(9, 300), 10);
    driver.steps(2);
  }
  static SchedulerConfig config() {
    SchedulerConfig made = test::small();
    made.max_num_seqs = 2;
    made.num_host_blocks = 4;
    return made;
  }
  Driver driver;
};

struct Damage {
  const char* name;
  std::function<void(SchedulerVandal&)> act;
  const char* told;
};

const Damage kDamages[] = {
    {"AReferenceTooMany", [](auto& of) { of.pool.retain(of.block(0)); },
     "is in 1 tables but has 2 references"},
    {"AReferenceTooFew", [](auto& of) { of.pool.release(of.block(1)); },
     "a block to write to is shared or published"},
    {"ABlockOfNobody", [](auto& of) { of.pool.allocate(); }, "is in 0 tables but has 1 references"},
    {"APinTooMany", [](auto& of) { of.pool.pin(of.first().table.node()); }, "has a wrong number of pins"},
    {"AWishTooMany", [](auto& of) { of.pool.want(text(8, 0), 0, 1); },
     "the eviction policy knows another queue"},
    {"AnotherToken", [](auto& of) { ++of.first().tokens.write()[0]; },
     "the index does not know it by its tokens"},
    {"ATokenTooMany", [](auto& of) { of.running.back()->computed += 20; },
     "computes more tokens than it has"},
    {"NothingLeft", [](auto& of) { ++of.first().computed; }, "has nothing left to compute"},
    {"ATableTooLong", [](auto& of) { of.running.back()->computed -= 8; }, "its table is not as long"},
    {"ATokenThatNobodySamples", [](auto& of) { ++of.running.back()->pending; },
     "awaits a token that no open step computes"},
    {"APlanThatNobodyMade",
     [](auto& of) {
       --of.first().computed;
       ++of.first().planned;
     },
     "has planned tokens, but no step is open"},
    {"MoreThanItMayHave", [](auto& of) { of.first().longest = of.first().total(); },
     "has all its tokens but goes on"},
    {"ALostSlot", [](auto& of) { of.by_slot.push_back(nullptr); }, "a slot is lost"},
    {"ASlotOfTwo", [](auto& of) { of.running.back()->slot = of.first().slot; }, "holds a sequence of slot"},
    {"ARunnerWithoutSlot", [](auto& of) { of.by_slot[of.first().slot] = nullptr; },
     "runs without a slot of its own"},
    {"AnotherPartlyComputed", [](auto& of) { std::swap(of.running[0], of.running[1]); },
     "partly computed, not the last admitted"},
    {"AQueueOutOfOrder", [](auto& of) { std::swap(of.waiting[0], of.waiting[1]); },
     "not in order of arrival"},
    {"AWaiterThatHolds", [](auto& of) { of.waiting[0]->computed = 1; }, "waits and holds a slot or blocks"},
    {"AWaiterThatIsLost",
     [](auto& of) {
       of.pool.want(of.waiting.back()->tokens, 0, -1);
       of.waiting.pop_back();
     },
     "2 sequences run and 1 wait, but 4 are known"},
    {"ALostHostBlock", [](auto& of) { of.free_host_blocks.pop_back(); }, "a host block is lost"},
    {"ASwapOfTooMuch", [](auto& of) { of.waiting[0]->swapped = 100; }, "swapped more than it has"},
};

void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

class Invariants : public testing::TestWithParam<Damage> {};

TEST_P(Invariants, AreTold) {
  House house;
  ASSERT_EQ(house.driver.scheduler.check_invariants(), "");
  SchedulerVandal vandal(house.driver.scheduler);
  ASSERT_EQ(vandal.running.size(), 2U);
  ASSERT_EQ(vandal.waiting.size(), 2U);
  GetParam().act(vandal);
  EXPECT_THAT(house.driver.scheduler.check_invariants(), HasSubstr(GetParam().told));
}

INSTANTIATE_TEST_SUITE_P(Broken, Invariants, testing::ValuesIn(kDamages),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace quire::control
