#include "sim/slo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/units.h"

namespace quire::sim {
namespace {

using test::kMillisecond;

std::string fault(std::string_view text) {
  try {
    Slo::parse(text, "--slo");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SloTest, ReadsLimitsInAnyOrderAndUnit) {
  const Slo slo = Slo::parse("tpot=50ms,attainment=95,ttft=0.5s,e2e=800us", "--slo");
  EXPECT_EQ(slo.ttft, 500 * kMillisecond);
  EXPECT_EQ(slo.tpot, 50 * kMillisecond);
  EXPECT_EQ(slo.e2e, 800'000);
  EXPECT_EQ(slo.attainment, 95);
  EXPECT_EQ(slo.text(), "ttft=500ms,tpot=50ms,e2e=800us,attainment=95");
  EXPECT_EQ(Slo::parse("ttft=2s", "--slo").text(), "ttft=2s,attainment=99");
}

TEST(SloTest, NamesWhatIsWrong) {
  using testing::HasSubstr;
  EXPECT_THAT(fault("ttft=500"), HasSubstr("--slo: 'ttft=500': is not a time"));
  EXPECT_THAT(fault("ttft=-1ms"), HasSubstr("is not a time"));
  EXPECT_THAT(fault("ttft=0ms"), HasSubstr("is not a time"));
  EXPECT_THAT(fault("ttft=1e9s"), HasSubstr("is not a time"));
  EXPECT_THAT(fault("ttft=nanms"), HasSubstr("is not a time"));
  EXPECT_THAT(fault("ttft=1ms,ttft=2ms"), HasSubstr("twice"));
  EXPECT_THAT(fault("itl=1ms"), HasSubstr("'itl=1ms': is none of"));
  EXPECT_THAT(fault("ttft"), HasSubstr("is not a time"));
  EXPECT_THAT(fault(""), HasSubstr("is none of"));
  EXPECT_THAT(fault("ttft=1ms,"), HasSubstr("is none of"));
  EXPECT_THAT(fault("attainment=99"), HasSubstr("at least one"));
  EXPECT_THAT(fault("ttft=1s,attainment=0"), HasSubstr("100 per cent"));
  EXPECT_THAT(fault("ttft=1s,attainment=101"), HasSubstr("100 per cent"));
  EXPECT_THAT(fault("ttft=1s,attainment=5x"), HasSubstr("100 per cent"));
}

TEST(SloTest, IsMetUpToItsLimits) {
  const Slo slo = Slo::parse("ttft=10ms,tpot=5ms,e2e=100ms", "--slo");
  EXPECT_TRUE(slo.met_by(10 * kMillisecond, 5 * kMillisecond, 100 * kMillisecond));
  EXPECT_TRUE(slo.met_by(10 * kMillisecond, std::nullopt, 10 * kMillisecond));
  EXPECT_FALSE(slo.met_by(10 * kMillisecond + 1, 5 * kMillisecond, 100 * kMillisecond));
  EXPECT_FALSE(slo.met_by(10 * kMillisecond, 5 * kMillisecond + 1, 100 * kMillisecond));
  EXPECT_FALSE(slo.met_by(10 * kMillisecond, 5 * kMillisecond, 100 * kMillisecond + 1));
  EXPECT_TRUE(slo.attained(99, 100));
  EXPECT_FALSE(slo.attained(98, 100));
}

}  // namespace
}  // namespace quire::sim
