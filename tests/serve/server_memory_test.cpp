#include "serve/server_memory.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace quire::serve {
namespace {

using test::kMiB;

TEST(ServerMemory, LargeMachinesKeepTheLimits) {
  ServerConfig config;
  const uint64_t most = most_memory(config);
  EXPECT_GT(most, config.max_body_memory + 2048 * 24 * 1024);
  EXPECT_FALSE(fit_memory(config, most, false));
  EXPECT_EQ(config.max_body_bytes, 16 * kMiB);
  EXPECT_EQ(config.max_connections, 2048U);
}

TEST(ServerMemory, SmallOnesAreNotPromisedMoreThanTheyHave) {
  for (const uint64_t bytes : {1000 * kMiB, 400 * kMiB, 100 * kMiB, 60 * kMiB}) {
    for (const bool keep : {false, true}) {
      ServerConfig config;
      if (keep) config.max_connections = 200;
      EXPECT_TRUE(fit_memory(config, bytes, keep));
      EXPECT_LE(most_memory(config), bytes);
      EXPECT_GE(most_memory(config), bytes / 2) << "what is there is used";
      EXPECT_LT(config.max_body_bytes, 16 * kMiB);
      EXPECT_GE(config.max_body_memory, 2 * config.max_body_bytes);
      EXPECT_EQ(config.max_json_bytes, 12 * config.max_body_bytes);
      if (keep) {
        EXPECT_EQ(config.max_connections, 200U) << "what is given is meant as it is";
      }
    }
  }
}

TEST(ServerMemory, SomethingAlwaysRemains) {
  ServerConfig config;
  EXPECT_TRUE(fit_memory(config, 0, false));
  EXPECT_EQ(config.max_body_bytes, 64U << 10);
  EXPECT_EQ(config.max_body_memory, 1 * kMiB);
  EXPECT_EQ(config.max_connections, 64U);
}

}  // namespace
}  // namespace quire::serve
