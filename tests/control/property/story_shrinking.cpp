#include "tests/control/property/story_shrinking.h"

#include <algorithm>
#include <utility>

namespace quire::test {
namespace {

/// What `thing` is with each of the fields that are not `to` at `to`, and numbers halfway there.
template <typename Thing>
class Simpler {
 public:
  explicit Simpler(Thing thing) : thing_(std::move(thing)) {}

  template <typename Owner, typename T>
  Simpler& field(Owner& (*of)(Thing&), T Owner::*member, std::type_identity_t<T> to) {
    const T value = of(thing_).*member;
    for (T next = to; next != value;) {
      Thing made = thing_;
      of(made).*member = next;
      found_.push_back(std::move(made));
      if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>) {
        break;
      } else {
        const auto rest = static_cast<int64_t>(value) - static_cast<int64_t>(next);
        if (rest / 2 == 0) break;
        next = static_cast<T>(static_cast<int64_t>(next) + rest / 2);
      }
    }
    return *this;
  }
  std::vector<Thing> take() { return std::move(found_); }

 private:
  Thing thing_;
  std::vector<Thing> found_;
};

Request& request_of(Operation& operation) { return operation.request; }
Operation& itself(Operation& operation) { return operation; }
control::SchedulerConfig& config_of(control::SchedulerConfig& config) { return config; }
control::CostHints& costs_of(control::SchedulerConfig& config) { return config.costs; }

rc::Seq<Operation> simpler_operation(const Operation& operation) {
  Simpler<Operation> made(operation);
  if (operation.kind == Operation::Kind::kPlan) {
    made.field(itself, &Operation::kind, Operation::Kind::kStep);
  }
  if (operation.kind == Operation::Kind::kFork) made.field(itself, &Operation::kind, Operation::Kind::kAdd);
  if (operation.kind == Operation::Kind::kBudget) made.field(itself, &Operation::tokens, 1000);
  made.field(itself, &Operation::milliseconds, 0).field(itself, &Operation::fails, 0);
  made.field(request_of, &Request::text, 0)
      .field(request_of, &Request::length, 0)
      .field(request_of, &Request::own, operation.request.length > 0 ? 0 : 1)
      .field(request_of, &Request::max_tokens, 1)
      .field(request_of, &Request::salt, 0)
      .field(request_of, &Request::choice, 0)
      .field(request_of, &Request::stop_token, 0)
      .field(request_of, &Request::stop_after, 0)
      .field(request_of, &Request::rows, 0)
      .field(request_of, &Request::first_row, 0)
      .field(request_of, &Request::pooling, 0)
      .field(request_of, &Request::penalties, false)
      .field(request_of, &Request::priority, 0)
      .field(request_of, &Request::tenant, 0)
      .field(request_of, &Request::deadline, 0)
      .field(request_of, &Request::expected, 0);
  return rc::seq::fromContainer(made.take());
}

std::vector<control::SchedulerConfig> simpler_configs(const control::SchedulerConfig& config) {
  const control::SchedulerConfig usual;
  Simpler<control::SchedulerConfig> made(config);
  made.field(config_of, &control::SchedulerConfig::scheduling, usual.scheduling)
      .field(config_of, &control::SchedulerConfig::batching, usual.batching)
      .field(config_of, &control::SchedulerConfig::victim, usual.victim)
      .field(config_of, &control::SchedulerConfig::preemption, usual.preemption)
      .field(config_of, &control::SchedulerConfig::eviction, usual.eviction)
      .field(config_of, &control::SchedulerConfig::enable_prefix_caching, false)
      .field(config_of, &control::SchedulerConfig::priority_aging, usual.priority_aging)
      .field(config_of, &control::SchedulerConfig::num_host_blocks, 0)
      .field(costs_of, &control::CostHints::swap_block, usual.costs.swap_block)
      .field(config_of, &control::SchedulerConfig::watermark_bp, 0)
      .field(config_of, &control::SchedulerConfig::max_num_seqs, 1)
      .field(config_of, &control::SchedulerConfig::max_num_batched_tokens, config.max_num_seqs)
      .field(config_of, &control::SchedulerConfig::context_cost, 0)
      .field(config_of, &control::SchedulerConfig::max_model_len, 100)
      .field(config_of, &control::SchedulerConfig::max_waiting, 100)
      .field(config_of, &control::SchedulerConfig::block_size, 1)
      .field(config_of, &control::SchedulerConfig::num_blocks, 1);
  std::vector<control::SchedulerConfig> found = made.take();
  const auto with_windows = [&](std::vector<uint32_t> windows) {
    if (windows == config.kv_windows) return;
    found.push_back(config);
    found.back().kv_windows = std::move(windows);
  };
  with_windows({0});
  for (size_t i = 0; i < config.kv_windows.size(); ++i) {
    auto windows = config.kv_windows;
    windows[i] = 0;
    with_windows(windows);
    if (windows.size() == 1) continue;
    windows = config.kv_windows;
    windows.erase(windows.begin() + static_cast<ptrdiff_t>(i));
    with_windows(windows);
  }
  return found;
}

}  // namespace

rc::Seq<Story> simpler(const Story& story) {
  const auto with_operations = [config = story.config,
                                depth = story.depth](std::vector<Operation> operations) {
    return Story{config, depth, std::move(operations)};
  };
  const auto with_config = [operations = story.operations,
                            depth = story.depth](control::SchedulerConfig config) {
    return Story{std::move(config), depth, operations};
  };
  std::vector<Story> shallower;
  if (story.depth > 1) shallower.push_back({story.config, story.depth - 1, story.operations});
  return rc::seq::concat(
      rc::seq::fromContainer(std::move(shallower)),
      rc::seq::map(rc::shrink::removeChunks(story.operations), with_operations),
      rc::seq::map(rc::seq::fromContainer(simpler_configs(story.config)), with_config),
      rc::seq::map(rc::shrink::eachElement(story.operations, simpler_operation), with_operations));
}

void showValue(const Story& story, std::ostream& out) { out << to_string(story); }

}  // namespace quire::test

rc::Gen<quire::test::Story> rc::Arbitrary<quire::test::Story>::arbitrary() {
  return [](const rc::Random& random, int /*size*/) {
    // Not the function itself: Clang cannot bind RapidCheck's `const Decay<F>&` to a reference to a function.
    const auto simpler = [](const quire::test::Story& story) { return quire::test::simpler(story); };
    return rc::shrinkable::shrinkRecur(quire::test::make_story(rc::Random(random).next()), simpler);
  };
}
