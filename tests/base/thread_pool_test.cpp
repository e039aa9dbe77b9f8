#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(ThreadPool, CoversEveryIndexOnceAndItsWritesAreSeen) {
  for (const uint32_t threads : {1U, 2U, 3U, 9U}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.num_threads(), threads);
    for (const size_t count : {0, 1, 2, 7, 64, 1000, 4097}) {
      for (const size_t grain : {0, 1, 3, 64, 5000}) {
        std::vector<int> hits(count);  // plain ints: the pool itself must order the accesses
        const auto body = [&](size_t begin, size_t end, uint32_t thread) {
          EXPECT_LT(thread, threads);
          EXPECT_LT(begin, end);
          for (size_t i = begin; i < end; ++i) ++hits[i];
        };
        pool.parallel_for(count, grain, body);
        for (const int hit : hits) ASSERT_EQ(hit, 1);
        pool.parallel_shares(count, grain, body);
        for (const int hit : hits) ASSERT_EQ(hit, 2);
      }
    }
  }
}

TEST(ThreadPool, PiecesAreAtLeastTheGrain) {
  ThreadPool pool(4);
  std::atomic<int> small{0};
  pool.parallel_for(1003, 10, [&](size_t begin, size_t end, uint32_t) {
    if (end - begin < 10) small.fetch_add(1);
  });
  EXPECT_LE(small.load(), 1);
}

TEST(ThreadPool, AThreadNumberBelongsToOneThreadAtATime) {
  ThreadPool pool(4);
  std::vector<std::vector<size_t>> per_thread(4);
  for (int round = 0; round < 200; ++round) {
    pool.parallel_for(64, 1,
                      [&](size_t begin, size_t, uint32_t thread) { per_thread[thread].push_back(begin); });
  }
  size_t total = 0;
  for (const auto& indices : per_thread) total += indices.size();
  EXPECT_EQ(total, 200U * 64U);
}

TEST(ThreadPool, AThreadTakesItsShareInARowThenWhatIsLeft) {
  ThreadPool pool(2);
  std::vector<size_t> taken[2];
  std::atomic<size_t> done{0};
  std::atomic<bool> has_two{false};
  pool.parallel_shares(64, 2, [&](size_t begin, size_t, uint32_t thread) {
    taken[thread].push_back(begin);
    if (thread == 1 && taken[1].size() == 2) has_two.store(true);
    // The caller waits for the other thread before it leaves its share, then the other for all that is left.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    const auto waits = [&] {
      return thread == 0 ? begin == 30 && !has_two.load() : taken[1].size() == 2 && done.load() < 31;
    };
    while (waits() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    done.fetch_add(1);
  });
  std::vector<size_t> own_then_left(30);
  std::iota(own_then_left.begin(), own_then_left.end(), 0);
  for (size_t& begin : own_then_left) begin = begin < 16 ? 2 * begin : 2 * begin + 4;
  EXPECT_EQ(taken[0], own_then_left);
  EXPECT_EQ(taken[1], (std::vector<size_t>{32, 34}));
}

TEST(ThreadPool, TheLastPieceOfAShareIsTakenOnceByWhomever) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> hits(8);
  for (int round = 1; round <= 20000; ++round) {
    pool.parallel_shares(hits.size(), 1, [&](size_t begin, size_t end, uint32_t) {
      EXPECT_EQ(end, begin + 1);
      hits.at(begin).fetch_add(1);
    });
    for (const std::atomic<int>& hit : hits) ASSERT_EQ(hit.load(), round);
  }
}

TEST(ThreadPool, ManyShortLoopsInSequence) {
  for (const uint32_t threads : {2U, 8U}) {  // 8: more than the usual machine has processors
    ThreadPool pool(threads);
    size_t sum = 0;
    std::vector<size_t> parts(16);
    for (size_t round = 0; round < 3000; ++round) {
      pool.parallel_for(parts.size(), 1,
                        [&](size_t begin, size_t, uint32_t) { parts[begin] = round + begin; });
      sum += std::accumulate(parts.begin(), parts.end(), size_t{0}) - 16 * round;
    }
    EXPECT_EQ(sum, 3000U * 120U);
  }
}

TEST(ThreadPool, WorkersHelpAfterHavingSlept) {
  ThreadPool pool(2);
  using namespace std::chrono_literals;
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(20ms);
    std::atomic<int> inside{0};
    std::atomic<bool> met{false};
    // Both threads must be in the loop at once, or this waits its 10 seconds out.
    pool.parallel_for(2, 1, [&](size_t, size_t, uint32_t) {
      inside.fetch_add(1);
      const auto end = std::chrono::steady_clock::now() + 10s;
      while (!met.load() && std::chrono::steady_clock::now() < end) {
        if (inside.load() == 2) met.store(true);
        std::this_thread::yield();
      }
    });
    ASSERT_TRUE(met.load());
  }
}

TEST(ThreadPool, ConstBodies) {
  ThreadPool pool(2);
  std::atomic<size_t> seen{0};
  const auto body = [&](size_t begin, size_t end, uint32_t) { seen += end - begin; };
  pool.parallel_for(100, 7, body);
  EXPECT_EQ(seen.load(), 100U);
}

TEST(ThreadPool, EndsWhileWorkersSpinOrSleep) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(3);
    if (round % 2 == 0) pool.parallel_for(10, 1, [](size_t, size_t, uint32_t) {});
  }
}

}  // namespace
}  // namespace quire
