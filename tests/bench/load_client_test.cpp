#include "bench/load_client.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace quire::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ServerUrl, IsTakenApart) {
  const ServerUrl plain = ServerUrl::parse("http://127.0.0.1:8000", "--url");
  EXPECT_EQ(plain.host, "127.0.0.1");
  EXPECT_EQ(plain.port, "8000");
  EXPECT_EQ(plain.base, "");
  EXPECT_EQ(ServerUrl::parse("http://host", "--url").port, "80");
  EXPECT_EQ(ServerUrl::parse("http://host:1/v1/", "--url").base, "");
  EXPECT_EQ(ServerUrl::parse("http://host:1/some/where/v1", "--url").base, "/some/where");
  const ServerUrl six = ServerUrl::parse("http://[::1]:65535/", "--url");
  EXPECT_EQ(six.host, "::1");
  EXPECT_EQ(six.authority(), "[::1]:65535");
}

TEST(ServerUrl, RefusesWhatIsNone) {
  for (const char* url :
       {"", "host:80", "https://host", "http://", "http://:80", "http://host:", "http://host:0",
        "http://host:65536", "http://host:8x", "http://a:b:80", "http://::1:80", "http://[::1",
        "http://user@host", "http://host?x", "http://ho st"}) {
    try {
      ServerUrl::parse(url, "--where");
      ADD_FAILURE() << url;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("--where: '" + std::string(url) + "'"));
    }
  }
}

std::vector<std::string> events_of(const std::vector<std::string>& pieces) {
  EventReader reader;
  std::vector<std::string> events;
  for (const std::string& piece : pieces) {
    reader.push(piece, [&](std::string_view data) { events.emplace_back(data); });
  }
  return events;
}

TEST(EventReader, TakesEventsHoweverTheyAreSplit) {
  const std::string stream =
      "data: one\n\n: a comment\nevent: x\ndata:two\r\n\r\n\r\ndata\n\ndata: a\rdata:  b\r\rid: 7\n\ndatum: "
      "no\n\n"
      "data: [DONE]\n\ndata: not ended\n";
  const auto whole = events_of({stream});
  EXPECT_THAT(whole, ElementsAre("one", "two", "", "a\n b", "[DONE]"));
  for (size_t at = 0; at <= stream.size(); ++at) {
    EXPECT_EQ(events_of({stream.substr(0, at), stream.substr(at)}), whole) << at;
  }
  std::vector<std::string> bytes;
  for (const char c : stream) bytes.emplace_back(1, c);
  EXPECT_EQ(events_of(bytes), whole);
}

TEST(EventReader, BoundsAnEvent) {
  const std::string piece(EventReader::kMostBytes / 2 - 100, 'x');
  EXPECT_EQ(events_of({"data: ", piece, "\n", "data: ", piece, "\n\n"}).size(), 1U);
  EXPECT_THROW(events_of({"data: ", piece, piece, piece}), Error);
  EXPECT_THROW(events_of({"data: ", piece, "\ndata: ", piece, "\ndata: ", piece, "\n\n"}), Error);
}

/// One event in a read of its own.
void come(StreamedAnswer& answer, std::string_view event, Nanos now) {
  answer.take(event);
  answer.arrive(now);
}

TEST(StreamedAnswer, CountsPiecesUntilTheServerSays) {
  StreamedAnswer answer;
  come(answer, R"({"choices":[{"text":""}]})", 5);
  EXPECT_EQ(answer.first, -1);
  come(answer, R"({"choices":[{"text":"a"}],"usage":null})", 10);
  come(answer, R"({"choices":[{"text":"bc","finish_reason":"length"}]})", 25);
  EXPECT_EQ(answer.tokens, 2U);
  EXPECT_FALSE(answer.has_usage);
  come(answer, R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":4}})", 30);
  EXPECT_FALSE(answer.done);
  come(answer, "[DONE]", 31);
  EXPECT_TRUE(answer.done);
  EXPECT_EQ(answer.first, 10);
  EXPECT_EQ(answer.last, 25);
  EXPECT_THAT(answer.gaps, ElementsAre(15));
  EXPECT_EQ(answer.tokens, 4U);
  EXPECT_EQ(answer.prompt_tokens, 7U);
  EXPECT_EQ(answer.error, "");
}

TEST(StreamedAnswer, TokensOfOneReadShareTheTimeBeforeIt) {
  constexpr const char* kOne = R"({"choices":[{"text":"a"}]})";
  StreamedAnswer answer;
  answer.arrive(1);  // a read without an event
  answer.take(kOne);
  answer.take(kOne);
  answer.arrive(100);
  EXPECT_EQ(answer.first, 100);
  EXPECT_TRUE(answer.gaps.empty());
  answer.take(R"({"choices":[{"text":""}]})");
  answer.arrive(150);
  for (int i = 0; i < 3; ++i) answer.take(kOne);
  answer.arrive(200);
  EXPECT_THAT(answer.gaps, ElementsAre(33, 33, 34));
  come(answer, R"({"choices":[{"text":"bc","token_ids":[5,6]}]})", 210);
  EXPECT_THAT(answer.gaps, ElementsAre(33, 33, 34, 5, 5));
  come(answer, R"({"choices":[],"usage":{"completion_tokens":7}})", 400);
  EXPECT_EQ(answer.last, 210);
  EXPECT_EQ(answer.gaps.size(), 5U);
  EXPECT_EQ(answer.tokens, 7U);
}

TEST(StreamedAnswer, KnowsChatCompletionsAndThoughts) {
  StreamedAnswer answer;
  come(answer, R"({"choices":[{"delta":{"role":"assistant","content":null}}]})", 1);
  come(answer, R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", 2);
  EXPECT_EQ(answer.first, -1);
  come(answer, R"({"choices":[{"delta":{"reasoning_content":"hm"}}]})", 3);
  come(answer, R"({"choices":[{"delta":{"reasoning":"hm"}}]})", 4);
  come(answer, R"({"choices":[{"delta":{"content":"x"}}]})", 5);
  come(answer, R"({"choices":[{"delta":{},"finish_reason":"stop"}]})", 6);
  EXPECT_EQ(answer.first, 3);
  EXPECT_EQ(answer.tokens, 3U);
  EXPECT_EQ(answer.error, "");
}

TEST(StreamedAnswer, CountsTokensThatAreNoTextYet) {
  StreamedAnswer answer;
  come(answer, R"({"choices":[{"text":"","prompt_token_ids":[1,2]}]})", 1);
  come(answer, R"({"choices":[{"text":"","token_ids":[]}]})", 2);
  EXPECT_EQ(answer.first, -1);
  come(answer, R"({"choices":[{"text":"","token_ids":[195]}]})", 5);
  come(answer, R"({"choices":[{"text":"\u00e9","token_ids":[169]}]})", 9);
  EXPECT_EQ(answer.first, 5);
  EXPECT_THAT(answer.gaps, ElementsAre(4));
}

TEST(StreamedAnswer, OddEventsDoNoHarm) {
  for (const char* event : {"{}", R"({"choices":7})", R"({"choices":[3]})", R"({"choices":[{"text":3}]})",
                            R"({"choices":[{"delta":"x"}]})", R"({"error":null})",
                            R"({"usage":{"completion_tokens":-3,"prompt_tokens":"x"}})", R"({"usage":3})"}) {
    StreamedAnswer answer;
    come(answer, event, 1);
    EXPECT_EQ(answer.error, "") << event;
    EXPECT_EQ(answer.tokens, 0U) << event;
    EXPECT_EQ(answer.first, -1) << event;
  }
  for (const char* event : {"", "[1]", "{", "nonsense"}) {
    StreamedAnswer answer;
    come(answer, event, 1);
    EXPECT_THAT(answer.error, HasSubstr("not a JSON object")) << event;
  }
}

TEST(StreamedAnswer, KeepsTheFirstErrorFitForATerminal) {
  StreamedAnswer answer;
  come(answer, R"({"error":{"message":"out of \u001b[31m memory"}})", 1);
  come(answer, R"({"error":"second"})", 2);
  EXPECT_EQ(answer.error, "out of \\u{1b}[31m memory");
  StreamedAnswer text;
  come(text, R"({"error":"plain"})", 1);
  EXPECT_EQ(text.error, "plain");
  StreamedAnswer lengthy;
  come(lengthy, "{\"error\":\"" + std::string(5000, 'x') + "\"}", 1);
  EXPECT_LT(lengthy.error.size(), 300U);
}

}  // namespace
}  // namespace quire::bench
