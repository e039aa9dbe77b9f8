#include "bench/load_table.h"

#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/server_footprint.h"
#include "serve/process_metrics.h"

namespace quire::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

LoadRow row(uint32_t concurrency, uint64_t tokens) {
  LoadRow out;
  out.concurrency = concurrency;
  out.report.requests = out.report.finished = 4;
  out.report.output_tokens = tokens;
  out.report.elapsed = 2'000'000'000;
  out.report.ttft = {.p50 = 12'500'000, .any = true};
  return out;
}

TEST(ServerFootprint, ReadsPrometheusText) {
  const std::string text =
      "# HELP a:b the first a:b 9\n# TYPE a:b gauge\na:b{x=\"1} 5\",y=\"2\"} 0.25\na:b{x=\"2\"} 0.5\na:bc 7\n"
      "plain 3e6\nnone NaN\nwrong x\n";
  EXPECT_EQ(metric_value(text, "a:b"), 0.5);
  EXPECT_EQ(metric_value(text, "plain"), 3e6);
  for (const char* name : {"none", "wrong", "absent", "a"}) EXPECT_FALSE(metric_value(text, name)) << name;
}

TEST(ServerFootprint, KeepsTheMostOfWhatItSaw) {
  ServerFootprint server;
  server.take("nothing 1\n");
  EXPECT_FALSE(server.kv_usage_peak || server.resident || server.resident_peak);
  server.take("vllm:kv_cache_usage_perc{model=\"m\"} 0.75\nprocess_resident_memory_bytes 5000\n");
  server.take("vllm:kv_cache_usage_perc{model=\"m\"} 0.25\nprocess_resident_memory_bytes 4000\n");
  EXPECT_EQ(server.kv_usage_peak, 0.75);
  EXPECT_EQ(server.resident, 4000U);
  EXPECT_EQ(server.resident_peak, 5000U);
  server.take("quire:process_resident_memory_peak_bytes 9000\n");
  EXPECT_EQ(server.resident_peak, 9000U);
}

TEST(ServerFootprint, SaysNothingOfALoadThatItDidNotSee) {
  ServerFootprint server;
  server.take("vllm:kv_cache_usage_perc 0\n");
  EXPECT_FALSE(server.kv_usage_peak);
  server.take("vllm:kv_cache_usage_perc 0.25\n");
  server.take("vllm:kv_cache_usage_perc 0\n");
  EXPECT_EQ(server.kv_usage_peak, 0.25);
}

TEST(ServerFootprint, IsWhatThisProcessSaysOfItself) {
  ServerFootprint server;
  server.take(serve::process_metrics());
  ASSERT_TRUE(server.resident && server.resident_peak);
  EXPECT_GT(*server.resident, 1U << 20);
  EXPECT_GE(*server.resident_peak, *server.resident);
}

TEST(LoadTable, HasTheRatioToItsFirstRow) {
  const LoadRow one = row(1, 100);
  LoadRow many = row(16, 450);
  EXPECT_THAT(load_table_head(1), HasSubstr(" x 1 "));
  EXPECT_EQ(load_table_line(one, one).size(), load_table_head(1).size());
  EXPECT_THAT(load_table_line(many, one), HasSubstr("     16      225.0    4.50       12.5 "));
  EXPECT_THAT(load_table_line(many, one), testing::EndsWith("-           -           -"));
  many.server = {.kv_usage_peak = 0.125, .resident = 3U << 20, .resident_peak = 5U << 20};
  EXPECT_THAT(load_table_line(many, one), testing::EndsWith("   12.5     3.0 MiB     5.0 MiB"));
  EXPECT_EQ(ratio(many, row(1, 0)), 0);
}

TEST(LoadTable, IsJsonAndAPage) {
  std::vector<LoadRow> rows = {row(1, 100), row(2, 150)};
  rows[1].server.resident = 7;
  const boost::json::array json = to_json(rows);
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[1].at("ratio").as_double(), 1.5);
  EXPECT_TRUE(json[0].at("resident_bytes").is_null());
  EXPECT_EQ(json[1].at("resident_bytes").to_number<uint64_t>(), 7U);
  rows[1].report.failed = 1;
  rows[1].report.errors = {{1, "<b>"}};
  const std::string page = load_table_page({{"--flag", "<i>"}}, rows);
  EXPECT_THAT(page, HasSubstr("1 failed: &lt;b&gt;"));
  EXPECT_THAT(page, HasSubstr("&lt;i&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<h2>1 clients")));
}

}  // namespace
}  // namespace quire::bench
