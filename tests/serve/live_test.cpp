// /debug/live: who may read what of a running server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/live_feed.h"
#include "tests/serve/service.h"

namespace quire::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string live_request(std::string_view headers = {}) {
  return "GET /debug/live HTTP/1.1\r\nHost: x\r\n" + std::string(headers) + "\r\n";
}

std::string bearer(std::string_view key) { return "Authorization: Bearer " + std::string(key) + "\r\n"; }

TEST(Live, WithoutKeysTheFlagOpensIt) {
  Service closed;
  const Answer refused = closed.get("/debug/live");
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("--live"));

  Service open({.server = {.live = true}});
  HttpClient reader(open.port());
  ASSERT_TRUE(reader.send(live_request()));
  EXPECT_THAT(reader.read_until("\"start\""), HasSubstr("text/event-stream"));
  EXPECT_EQ(open.complete(R"({"prompt":"a secret","max_tokens":5})").status, 200);
  const std::string told = reader.read_until("\"after\":true");
  EXPECT_THAT(told, HasSubstr("\"prompt\":8,\"max\":5"));
  EXPECT_THAT(told, HasSubstr("\"text\":\"max_tokens reached\""));
  EXPECT_THAT(told, Not(HasSubstr("secret")));
}

TEST(Live, AKeySeesItsOwnAndAnOperatorAll) {
  serve::ServerConfig config;
  config.api_keys = keys_of({"one", "two", "boss"});
  config.operators = {"boss"};
  Service service({.server = config});
  EXPECT_EQ(service.get("/debug/live").status, 401);
  HttpClient one(service.port());
  HttpClient boss(service.port());
  ASSERT_TRUE(one.send(live_request(bearer("one"))));
  ASSERT_TRUE(boss.send(live_request(bearer("boss"))));
  EXPECT_THAT(one.read_until("\"groups\""), HasSubstr("\"own\":true"));
  EXPECT_THAT(boss.read_until("\"groups\""), HasSubstr("\"own\":false"));
  EXPECT_EQ(service.post("/v1/completions", R"({"prompt":"aaa","max_tokens":3})", bearer("two")).status, 200);
  EXPECT_EQ(service.post("/v1/completions", R"({"prompt":"bbbbb","max_tokens":4})", bearer("one")).status,
            200);
  const std::string own = one.read_until("max_tokens reached");
  EXPECT_THAT(own, HasSubstr("\"i\":0"));
  EXPECT_THAT(own, HasSubstr("\"prompt\":5,"));
  EXPECT_THAT(own, Not(HasSubstr("\"prompt\":3,")));
  EXPECT_THAT(own, Not(HasSubstr("\"held\"")));
  EXPECT_THAT(own, Not(HasSubstr("\"i\":1")));
  const std::string all = boss.read_until("\"prompt\":5,");
  EXPECT_THAT(all, HasSubstr("\"prompt\":3,"));
}

TEST(Live, HeadHasNoBodyAndTakesNoSeat) {
  Service service({.server = {.live = true}});
  HttpClient client(service.port());
  for (size_t i = 0; i <= engine::LiveFeed::kMostReaders; ++i) {
    ASSERT_TRUE(client.send("HEAD /debug/live HTTP/1.1\r\nHost: x\r\n\r\n"));
    const std::string head = client.read_until("\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 200")) << head;
    EXPECT_THAT(head, HasSubstr("text/event-stream"));
  }
  // On the same connection: nothing lies between the heads and this answer.
  ASSERT_TRUE(client.send("GET /version HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_TRUE(client.read_until("\r\n").starts_with("HTTP/1.1 200"));
}

TEST(Live, SoManyReadersAndNoMore) {
  Service service({.server = {.live = true}});
  std::vector<std::unique_ptr<HttpClient>> readers;
  for (size_t i = 0; i < engine::LiveFeed::kMostReaders; ++i) {
    readers.push_back(std::make_unique<HttpClient>(service.port()));
    ASSERT_TRUE(readers.back()->send(live_request()));
    readers.back()->read_until("\"start\"");
  }
  EXPECT_EQ(service.get("/debug/live").status, 503);
  readers.pop_back();
  bool again = false;
  for (int i = 0; i < 100 && !again; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    HttpClient next(service.port());
    ASSERT_TRUE(next.send(live_request()));
    again = next.read_until("\r\n").find("200") != std::string::npos;
  }
  EXPECT_TRUE(again);
}

TEST(Live, AReaderWhoJoinsLateIsToldWhatIsThere) {
  Service service({.server = {.live = true}, .max_model_len = 512, .step_delay = 5'000'000});
  HttpClient long_one(service.port());
  ASSERT_TRUE(long_one.send(post_text("/v1/completions", R"({"prompt":"long","max_tokens":400})")));
  ASSERT_TRUE(service.wait_until_running());
  HttpClient first(service.port());
  ASSERT_TRUE(first.send(live_request()));
  EXPECT_THAT(first.read_until("\"steps\""), HasSubstr("\"prompt\":4,\"max\":400"));
  HttpClient second(service.port());
  ASSERT_TRUE(second.send(live_request()));
  const std::string told = second.read_until("\"looks\"");
  EXPECT_THAT(told, HasSubstr("\"prompt\":4,\"max\":400"));
  EXPECT_THAT(told, HasSubstr("\"blocks\":[0,"));
}

TEST(Live, TheEndOfTheServerEndsIt) {
  Service service({.server = {.live = true}});
  HttpClient reader(service.port());
  ASSERT_TRUE(reader.send(live_request()));
  reader.read_until("\"start\"");
  EXPECT_TRUE(service.server().stop(5'000'000'000));
  EXPECT_TRUE(reader.read_rest().ends_with("\r\n0\r\n\r\n")) << "a whole stream";
  EXPECT_TRUE(reader.closed_by_server());
}

}  // namespace
}  // namespace quire::test
