// What a server with a shadow tells its clients, and whom it refuses.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/serve/api_answer.h"
#include "tests/support/units.h"

namespace quire::serve {
namespace {

using test::Answer;
using test::error_code;
using test::error_param;
using test::HttpClient;
using test::Service;
using testing::HasSubstr;

constexpr const char* kWish = "x-quire-predict: 1\r\n";
using test::kMillisecond;

TEST(ShadowApi, TellsWhatItForesawToThoseWhoAsk) {
  Service service({.foreseen_step = 10 * kMillisecond});
  const std::string body = R"({"prompt": "a fox", "max_tokens": 5, "ignore_eos": true})";
  const Answer answer = service.post("/v1/completions", body, kWish);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_GE(std::stod(answer.headers.at("x-quire-predicted-ttft-ms")), 10);
  EXPECT_GE(std::stod(answer.headers.at("x-quire-predicted-ms")), 50);
  const json::value parsed = answer.parsed();
  const json::object& usage = parsed.at("usage").as_object();
  EXPECT_NEAR(usage.at("predicted_ttft_ms").to_number<double>(),
              std::stod(answer.headers.at("x-quire-predicted-ttft-ms")), 0.06);
  EXPECT_NEAR(
      usage.at("predicted_ms").to_number<double>() - usage.at("predicted_ttft_ms").to_number<double>(), 40,
      0.2);
  EXPECT_GE(usage.at("ttft_ms").to_number<double>(), 0);

  const Answer stream = service.post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 4, "stream": true})", kWish);
  EXPECT_TRUE(test::read_stream(stream).done);
  EXPECT_TRUE(stream.headers.contains("x-quire-predicted-ttft-ms"));

  const Answer plain = service.complete(body);
  EXPECT_FALSE(plain.headers.contains("x-quire-predicted-ttft-ms"));
  EXPECT_THAT(plain.body, testing::Not(HasSubstr("predicted")));
}

TEST(ShadowApi, RefusesAnOddWish) {
  Service service({.foreseen_step = 10 * kMillisecond});
  const std::string body = R"({"prompt": "a", "max_tokens": 2})";
  for (const char* odd : {"x-quire-predict: yes\r\n", "x-quire-predict: 01\r\n", "x-quire-predict: -1\r\n",
                          "x-quire-predict: 1\r\nX-Quire-Predict: 0\r\n"}) {
    const Answer answer = service.post("/v1/completions", body, odd);
    EXPECT_EQ(answer.status, 400) << odd;
    EXPECT_EQ(error_param(answer), "x-quire-predict");
  }
  EXPECT_EQ(service.post("/v1/completions", body, "x-quire-predict: 0\r\n").status, 200);
  EXPECT_EQ(service.post("/v1/completions", body, "x-quire-predict:\r\n").status, 200);
  Service blind;
  const Answer refused = blind.post("/v1/completions", body, kWish);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("--shadow"));
}

TEST(ShadowApi, ManyPromptsAndChoicesAreForetoldByTheFirst) {
  Service service({.max_num_seqs = 2, .foreseen_step = 10 * kMillisecond});
  const Answer answer =
      service.post("/v1/completions",
                   R"({"prompt": ["a", "b", "c", "d"], "n": 3, "max_tokens": 4, "ignore_eos": true})", kWish);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.parsed().at("choices").as_array().size(), 12U);
  EXPECT_TRUE(answer.headers.contains("x-quire-predicted-ms"));
  const Answer best = service.post(
      "/v1/completions",
      R"({"prompt": "a", "best_of": 3, "max_tokens": 4, "use_beam_search": true, "temperature": 0})", kWish);
  EXPECT_EQ(best.status, 200) << best.body;
  EXPECT_TRUE(best.headers.contains("x-quire-predicted-ms"));
}

TEST(ShadowApi, RefusesADeadlineThatCannotBeKept) {
  Service service({.num_blocks = 64,
                   .max_num_seqs = 1,
                   .step_delay = 5 * kMillisecond,
                   .foreseen_step = 10 * kMillisecond,
                   .promises = true});
  HttpClient running(service.port());
  running.send(
      test::post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 400, "ignore_eos": true})"));
  ASSERT_TRUE(service.wait_until_running());
  for (const char* stream : {"false", "true"}) {
    const Answer refused =
        service.complete(R"({"prompt": "a", "max_tokens": 2, "ttft_deadline_ms": 1000, "stream": )" +
                         std::string(stream) + "}");
    EXPECT_EQ(refused.status, 429) << refused.body;
    EXPECT_EQ(error_code(refused), "rate_limit_exceeded");
    EXPECT_THAT(refused.body, HasSubstr("within 1000 ms (ttft_deadline_ms) and predicted after"));
    const int wait = std::stoi(refused.headers.at("retry-after"));
    EXPECT_GE(wait, 1);
    EXPECT_LE(wait, 4);
  }
  const Answer never =
      service.complete(R"({"prompt": "a", "max_tokens": 2, "ttft_deadline_ms": 1, "stream": true})");
  EXPECT_EQ(never.status, 400) << never.body;
  EXPECT_EQ(error_param(never), "ttft_deadline_ms");
  EXPECT_FALSE(never.headers.contains("retry-after"));
  running.close();
  EXPECT_TRUE(service.wait_until_quiet());
  EXPECT_EQ(service.complete(R"({"prompt": ["a", "b"], "max_tokens": 2, "ttft_deadline_ms": 60000})").status,
            200);
  EXPECT_EQ(service.complete(R"({"prompt": "a", "max_tokens": 2})").status, 200) << "no deadline, no promise";
}

TEST(ShadowApi, ADeadlineNeedsAPolicyThatHeedsIt) {
  Service service({.foreseen_step = 10 * kMillisecond});
  const Answer refused = service.complete(R"({"prompt": "a", "max_tokens": 2, "ttft_deadline_ms": 1000})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("--admission slo"));
}

}  // namespace
}  // namespace quire::serve
