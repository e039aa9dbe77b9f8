// What the paths answer, over a real socket.
#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/serve/service.h"
#include "tests/support/sanitized.h"

namespace quire {
namespace {

using test::Answer;
using test::HttpClient;
using test::kSanitized;
using test::Service;
using testing::HasSubstr;

std::string text_of(const Answer& answer, size_t choice = 0) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  return std::string(answer.parsed().at("choices").at(choice).at("text").as_string());
}
std::string error_code(const Answer& answer) {
  const json::value body = answer.parsed();
  const json::value& code = body.at("error").at("code");
  return code.is_null() ? "" : std::string(code.as_string());
}
std::string error_param(const Answer& answer) {
  const json::value body = answer.parsed();
  const json::value& param = body.at("error").at("param");
  return param.is_null() ? "" : std::string(param.as_string());
}

/// The texts of a stream by choice, and how it went.
struct Stream {
  std::map<int64_t, std::string> text;
  std::map<int64_t, std::string> finish;
  std::vector<json::value> chunks;
  bool done = false;
};
Stream read_stream(const Answer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.headers.at("content-type"), HasSubstr("text/event-stream"));
  Stream out;
  for (size_t at = 0; at < answer.body.size();) {
    const size_t end = answer.body.find("\n\n", at);
    const std::string data = answer.body.substr(at + 6, end - at - 6);
    EXPECT_EQ(answer.body.substr(at, 6), "data: ");
    EXPECT_FALSE(out.done) << "an event after the end mark";
    at = end + 2;
    if (data == "[DONE]") {
      out.done = true;
      continue;
    }
    out.chunks.push_back(parse_json(data, "chunk"));
    for (const json::value& choice : out.chunks.back().at("choices").as_array()) {
      const int64_t index = choice.at("index").as_int64();
      const json::object& object = choice.as_object();
      const json::value* text = object.if_contains("delta") != nullptr
                                    ? object.at("delta").as_object().if_contains("content")
                                    : object.if_contains("text");
      if (text != nullptr) out.text[index] += std::string(text->as_string());
      if (object.at("finish_reason").is_string())
        out.finish[index] = std::string(object.at("finish_reason").as_string());
    }
  }
  return out;
}

class ApiTest : public testing::Test {
 protected:
  Service service_;
};

TEST_F(ApiTest, SmallPages) {
  EXPECT_EQ(service_.get("/health").status, 200);
  EXPECT_EQ(service_.get("/ping").status, 200);
  EXPECT_EQ(service_.get("/version").parsed().at("version"), "1.2.3");
  const Answer metrics = service_.get("/metrics");
  EXPECT_THAT(metrics.headers.at("content-type"), HasSubstr("text/plain"));
  EXPECT_THAT(metrics.body, HasSubstr("vllm:num_requests_running"));
}

TEST_F(ApiTest, Models) {
  const json::value models = service_.get("/v1/models").parsed();
  ASSERT_EQ(models.at("data").as_array().size(), 2U);
  EXPECT_EQ(models.at("data").at(0).at("id"), "letters");
  EXPECT_EQ(models.at("data").at(0).at("max_model_len"), 512);
  EXPECT_EQ(service_.get("/v1/models/letters").parsed().at("id"), "letters");
  EXPECT_EQ(service_.get("/v1/models/other%2Fname?x=y").parsed().at("id"), "other/name");
  const Answer unknown = service_.get("/v1/models/nothing");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(error_code(unknown), "model_not_found");
}

TEST_F(ApiTest, ACompletionIsRepeatableBySeed) {
  const std::string once = text_of(service_.complete(R"({"prompt": "abc", "seed": 5, "max_tokens": 12})"));
  EXPECT_EQ(once.size(), 12U);
  EXPECT_EQ(
      text_of(service_.complete(R"({"prompt": "abc", "seed": 5, "max_tokens": 12, "model": "letters"})")),
      once);
  EXPECT_NE(text_of(service_.complete(R"({"prompt": "abc", "seed": 6, "max_tokens": 12})")), once);
  EXPECT_NE(text_of(service_.complete(R"({"prompt": "abc", "max_tokens": 12})")),
            text_of(service_.complete(R"({"prompt": "abc", "max_tokens": 12})")))
      << "without a seed each request draws its own";
}

TEST_F(ApiTest, StreamedIsWhole) {
  const std::string body = R"({"prompt": "abc", "seed": 5, "max_tokens": 40, "n": 3)";
  const json::value whole = service_.complete(body + "}").parsed();
  const Stream stream = read_stream(
      service_.complete(body + R"(, "stream": true, "stream_options": {"include_usage": true}})"));
  EXPECT_TRUE(stream.done);
  ASSERT_EQ(stream.text.size(), 3U);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(json::value(stream.text.at(i)), whole.at("choices").at(static_cast<size_t>(i)).at("text"));
    EXPECT_EQ(stream.finish.at(i), "length");
  }
  EXPECT_EQ(stream.chunks.back().at("usage").at("completion_tokens"), 120);
  EXPECT_EQ(stream.chunks.back().at("usage").at("prompt_tokens"), 3);
}

TEST_F(ApiTest, SeveralPromptsInOrder) {
  const json::value both =
      service_.complete(R"({"prompt": ["abc", "xyz"], "n": 2, "temperature": 0, "max_tokens": 6})").parsed();
  ASSERT_EQ(both.at("choices").as_array().size(), 4U);
  const std::string second =
      text_of(service_.complete(R"({"prompt": "xyz", "temperature": 0, "max_tokens": 6})"));
  EXPECT_EQ(both.at("choices").at(2).at("text"), json::value(second));
  EXPECT_EQ(both.at("choices").at(3).at("index"), 3);
  EXPECT_EQ(both.at("usage").at("prompt_tokens"), 6);
  const std::string ids =
      text_of(service_.complete(R"({"prompt": [[49, 50, 51]], "temperature": 0, "max_tokens": 6})"));
  EXPECT_EQ(ids, second);
}

TEST_F(ApiTest, EchoStopAndLogprobs) {
  const std::string text =
      text_of(service_.complete(R"({"prompt": "abc", "temperature": 0, "echo": true, "max_tokens": 8})"));
  EXPECT_EQ(text.substr(0, 3), "abc");
  const std::string stop = text.substr(7, 1);
  const Answer stopped = service_.complete(fmt::format(
      R"({{"prompt": "abc", "temperature": 0, "max_tokens": 8, "stop": "{}", "logprobs": 2}})", stop));
  const json::value choice = stopped.parsed().at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(choice.at("stop_reason"), json::value(stop));
  EXPECT_EQ(std::string(choice.at("text").as_string()).find(stop), std::string::npos);
  EXPECT_EQ(choice.at("logprobs").at("token_logprobs").at(0), -0.5);
  EXPECT_EQ(choice.at("logprobs").at("top_logprobs").at(0).as_object().size(), 2U);
}

TEST_F(ApiTest, TokenIdsOnRequest) {
  const json::value body =
      service_.complete(R"({"prompt": "abc", "temperature": 0, "max_tokens": 3, "return_token_ids": true})")
          .parsed();
  EXPECT_EQ(body.at("choices").at(0).at("prompt_token_ids"), parse_json("[26, 27, 28]", "x"));
  EXPECT_EQ(body.at("choices").at(0).at("token_ids").as_array().size(), 3U);
  EXPECT_FALSE(body.as_object().contains("prompt_token_ids"));
}

TEST_F(ApiTest, TokenIdsOfAChatStandWhereVllmHasThem) {
  const std::string body =
      R"({"messages": [{"role": "user", "content": "hi"}], "n": 2, "max_tokens": 3, "seed": 1,
          "return_token_ids": true)";
  const json::value ids = service_.post("/tokenize", R"({"messages": [{"role": "user", "content": "hi"}]})")
                              .parsed()
                              .at("tokens");
  const json::value whole = service_.post("/v1/chat/completions", body + "}").parsed();
  EXPECT_EQ(whole.at("prompt_token_ids"), ids);
  const Stream stream = read_stream(service_.post("/v1/chat/completions", body + R"(, "stream": true})"));
  std::map<int64_t, json::array> tokens;
  for (size_t i = 0; i < stream.chunks.size(); ++i) {
    const json::object& chunk = stream.chunks[i].as_object();
    ASSERT_EQ(chunk.contains("prompt_token_ids"), i == 0);
    const json::object& choice = chunk.at("choices").at(0).as_object();
    EXPECT_FALSE(choice.contains("prompt_token_ids"));
    if (const json::value* more = choice.if_contains("token_ids")) {
      json::array& all = tokens[choice.at("index").as_int64()];
      all.insert(all.end(), more->as_array().begin(), more->as_array().end());
    }
  }
  EXPECT_EQ(stream.chunks.front().at("prompt_token_ids"), ids);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_FALSE(whole.at("choices").at(i).as_object().contains("prompt_token_ids"));
    EXPECT_EQ(whole.at("choices").at(i).at("token_ids"), json::value(tokens[static_cast<int64_t>(i)]));
  }
}

// Whoever counts chunks counts tokens, and each chunk's usage is that of its tokens and those before.
TEST_F(ApiTest, AChunkATokenHoweverQuickTheyCome) {
  const std::string more =
      R"("max_tokens": 300, "seed": 5, "stream": true,
         "stream_options": {"include_usage": true, "continuous_usage_stats": true}})";
  const Stream plain = read_stream(service_.complete(R"({"prompt": "abc", )" + more));
  ASSERT_EQ(plain.chunks.size(), 301U);
  for (size_t i = 0; i < 301; ++i) {
    EXPECT_EQ(plain.chunks[i].at("usage").at("completion_tokens"), std::min<size_t>(i + 1, 300));
  }
  const Stream chat = read_stream(
      service_.post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}], )" + more));
  ASSERT_EQ(chat.chunks.size(), 302U);
  for (size_t i = 0; i < 302; ++i) {
    EXPECT_EQ(chat.chunks[i].at("usage").at("completion_tokens"), std::min<size_t>(i, 300));
  }
}

TEST_F(ApiTest, AnEmptyPromptStartsFromTheFirstToken) {
  const std::string empty = text_of(service_.complete(R"({"prompt": "", "temperature": 0})"));
  EXPECT_EQ(empty, text_of(service_.complete(R"({"prompt": [1], "temperature": 0})")));
}

TEST_F(ApiTest, Chat) {
  const std::string body =
      R"({"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_completion_tokens": 9)";
  const json::value whole =
      service_.post("/v1/chat/completions", body + R"(, "logprobs": true, "top_logprobs": 2})").parsed();
  EXPECT_EQ(whole.at("object"), "chat.completion");
  const json::value& choice = whole.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_EQ(choice.at("logprobs").at("content").as_array().size(), 9U);
  EXPECT_EQ(choice.at("logprobs").at("content").at(0).at("top_logprobs").as_array().size(), 2U);
  // "user hi.go" is what the template makes of it.
  EXPECT_EQ(choice.at("message").at("content").as_string(),
            text_of(service_.complete(R"({"prompt": "user hi.go", "temperature": 0, "max_tokens": 9})")));
  const Stream stream = read_stream(service_.post("/v1/chat/completions", body + R"(, "stream": true})"));
  EXPECT_EQ(json::value(stream.text.at(0)), choice.at("message").at("content"));
  EXPECT_EQ(stream.chunks.front().at("choices").at(0).at("delta").at("role"), "assistant");
  EXPECT_TRUE(stream.done);
}

TEST_F(ApiTest, AChatCanGoOnWithItsLastMessage) {
  const json::value body = service_
                               .post("/tokenize", R"({"continue_final_message": true, "messages": [
      {"role": "user", "content": "a"}, {"role": "assistant", "content": "b "}]})")
                               .parsed();
  // "user a.assistant b " and nothing of the template after it.
  EXPECT_EQ(body.at("count"), std::string_view("user a.assistant b ").size());
}

TEST_F(ApiTest, TokenizeAndDetokenize) {
  const json::value body =
      service_.post("/tokenize", R"({"prompt": "abc", "return_token_strs": true})").parsed();
  EXPECT_EQ(body, parse_json(R"({"count": 3, "max_model_len": 512, "tokens": [26, 27, 28],
                                 "token_strs": ["letter", "letter", "letter"]})",
                             "x"));
  EXPECT_EQ(service_.post("/detokenize", R"({"tokens": [26, 27, 28]})").parsed(),
            parse_json(R"({"prompt": "abc"})", "x"));
  EXPECT_EQ(service_.post("/detokenize", R"({"tokens": [256]})").status, 400);
  EXPECT_EQ(service_.post("/tokenize", R"({"prompt": "x", "model": "nope"})").status, 404);
}

TEST_F(ApiTest, BadRequestsAreNamed) {
  const Answer json_error = service_.complete(R"({"prompt": )");
  EXPECT_EQ(json_error.status, 400);
  EXPECT_THAT(json_error.body, HasSubstr("at byte"));
  EXPECT_EQ(service_.complete("").status, 400);
  EXPECT_EQ(service_.complete("[]").status, 400);
  EXPECT_EQ(service_.complete(std::string(100000, '[')).status, 400);
  const auto told = [&](const std::string& body) {
    const Answer answer = service_.complete(body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    return std::string(answer.parsed().at("error").at("message").as_string());
  };
  EXPECT_EQ(told("{\"prompt\": \"ab\xff\"}"), "request body: at byte 14: not valid UTF-8 (byte 0xff)");
  EXPECT_THAT(told(R"({"prompt": "ab\ud83d"})"), HasSubstr("at byte 14: a lone surrogate (\\ud83d)"));
  EXPECT_THAT(told("\xEF\xBB\xBF{}"), HasSubstr("at byte 0: a byte order mark"));
  const Answer range = service_.complete(R"({"prompt": "a", "n": 0})");
  EXPECT_EQ(range.status, 400);
  EXPECT_EQ(error_param(range), "n");
  EXPECT_THAT(range.body, HasSubstr("from 1 to 128"));
  const Answer model = service_.complete(R"({"prompt": "a", "model": "gpt-9"})");
  EXPECT_EQ(model.status, 404);
  EXPECT_EQ(error_code(model), "model_not_found");
}

TEST_F(ApiTest, TooLongAPromptIsRefusedWithBothNumbers) {
  for (const std::string& body : {fmt::format(R"({{"prompt": "{}"}})", std::string(600, 'a')),
                                  std::string(R"({"prompt": "a", "max_tokens": 600})")}) {
    const Answer answer = service_.complete(body);
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(error_code(answer), "context_length_exceeded");
    EXPECT_EQ(error_param(answer), "prompt");
    EXPECT_THAT(answer.body, HasSubstr("context length is 512 tokens"));
    EXPECT_THAT(answer.body, testing::AnyOf(HasSubstr("requested 616 tokens (600 in the prompt"),
                                            HasSubstr("requested 601 tokens (1 in the prompt")));
  }
  const Answer chat = service_.post(
      "/v1/chat/completions",
      fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}]}})", std::string(600, 'a')));
  EXPECT_EQ(error_code(chat), "context_length_exceeded");
  EXPECT_EQ(error_param(chat), "messages");
}

TEST_F(ApiTest, PathsAndMethods) {
  EXPECT_EQ(service_.get("/nothing").status, 404);
  EXPECT_THAT(service_.post("/chat/completions", "{}").body, HasSubstr("; /v1/chat/completions is there"));
  EXPECT_EQ(service_.get("/v1/models/").parsed(), service_.get("/v1/models").parsed());
  EXPECT_EQ(service_.get("/v1/models/letters/").parsed().at("id"), "letters");
  EXPECT_EQ(service_.post("/v1/completions/", R"({"prompt": "a"})").status, 200);
  EXPECT_EQ(
      service_.post("/v1/chat/completions//", R"({"messages": [{"role": "user", "content": "a"}]})").status,
      200);
  EXPECT_EQ(service_.get("/v1").status, 404);
  EXPECT_EQ(service_.get("/%zz").status, 404);
  const Answer wrong = service_.get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_THAT(wrong.headers.at("allow"), HasSubstr("POST"));
  EXPECT_EQ(service_.post("/health", "{}").status, 405);
  HttpClient client(service_.port());
  client.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.read_answer(false).status, 200);
  EXPECT_EQ(client.get("/version").status, 200) << "a HEAD has no body";
}

TEST(Api, KeysAreWanted) {
  Service service({.server = {.api_keys = test::keys_of({"alpha", "beta"})}});
  EXPECT_EQ(service.get("/health").status, 200);
  EXPECT_EQ(service.get("/metrics").status, 200);
  for (const char* path : {"/v1/models", "/v1/nothing", "/v1/models/letters"}) {
    const Answer answer = service.get(path);
    EXPECT_EQ(answer.status, 401) << path;
    EXPECT_EQ(error_code(answer), "invalid_api_key");
  }
  EXPECT_EQ(service.post("/tokenize", R"({"prompt": "a"})").status, 401);
  EXPECT_EQ(service.post("/detokenize", R"({"tokens": []})", "Authorization: Bearer no\r\n").status, 401);
  EXPECT_EQ(service.get("/v1/models", "Authorization: Bearer beta\r\n").status, 200);
  EXPECT_EQ(service.get("/v1/nothing", "Authorization: Bearer beta\r\n").status, 404);
}

TEST(Api, TenantsShareNoBlocks) {
  Service service({.server = {.api_keys = test::keys_of({"alpha", "beta"})}});
  const std::string body = fmt::format(R"({{"prompt": "{}", "max_tokens": 2}})", std::string(100, 'q'));
  const auto cached = [&](const char* key, const std::string& text) {
    return service.post("/v1/completions", text, fmt::format("Authorization: Bearer {}\r\n", key))
        .parsed()
        .at("usage")
        .at("prompt_tokens_details")
        .at("cached_tokens")
        .as_int64();
  };
  EXPECT_EQ(cached("alpha", body), 0);
  EXPECT_EQ(cached("alpha", body), 96);
  EXPECT_EQ(cached("beta", body), 0);
  EXPECT_EQ(cached("beta", body), 96);
  std::string salted = body;
  salted.insert(1, R"("cache_salt": "s", )");
  EXPECT_EQ(cached("beta", salted), 0);
  EXPECT_EQ(cached("beta", salted), 96);
}

/// The message of the 400 that a chat gets.
std::string chat_refusal(Service& service, std::string_view more = {},
                         std::string_view path = "/v1/chat/completions") {
  const Answer answer =
      service.post(path, fmt::format(R"({{"messages": [{{"role": "user", "content": "a"}}]{}}})", more));
  EXPECT_EQ(answer.status, 400) << answer.body;
  const json::value body = answer.parsed();
  EXPECT_EQ(body.at("error").at("param"), "messages");
  return std::string(body.at("error").at("message").as_string());
}

TEST(Api, WithoutAChatTemplateChatIsRefused) {
  Service service({.templates = {}});
  EXPECT_THAT(chat_refusal(service), HasSubstr("no chat template"));
}

TEST(Api, WhatIsWrongWithATemplateIsTold) {
  constexpr std::string_view kTools = R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
  Service broken(
      {.templates = {{"default", {.text = "{{ messages[0].content }}", .file = "/m/chat_template.jinja"}},
                     {"tool_use", {.text = "a\n  {% if %}", .file = "/m/tool_use.jinja"}}}});
  EXPECT_EQ(chat_refusal(broken, kTools, "/tokenize"),
            "This model's chat template 'tool_use' is broken: tool_use.jinja: line 2, column 9: Expected an "
            "expression, got 'end of statement block'");
  EXPECT_EQ(broken
                .post("/v1/chat/completions",
                      R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1})")
                .status,
            200);
  Service failing({.templates = {{"default", {.text = "\n{{ messages[0].content / 2 }}", .file = "a"}},
                                 {"tool_use", {.text = "{{ raise_exception('No tools.') }}", .file = "b"}}}});
  EXPECT_EQ(chat_refusal(failing),
            "chat template: line 2, column 4: unsupported operand type(s) for /: 'str' and 'int'");
  EXPECT_EQ(chat_refusal(failing, kTools, "/tokenize"),
            "No tools. (raised by the chat template 'tool_use', line 1, column 19)");
  Service unnamed({.templates = {{"rag", {.text = "r", .file = "a"}}, {"a", {.text = "a", .file = "b"}}}});
  EXPECT_EQ(chat_refusal(unnamed),
            "This model has several chat templates and none is called 'default': a, rag.");
}

// The role that OpenAI's clients send instead of `system` reaches templates that do not know it.
TEST_F(ApiTest, ADevelopersMessageIsTheSystems) {
  const auto count = [&](const char* role) {
    return service_
        .post("/tokenize", fmt::format(R"({{"messages": [{{"role": "{}", "content": "be kind"}},
                                                         {{"role": "user", "content": "hi"}}]}})",
                                       role))
        .parsed()
        .at("tokens");
  };
  EXPECT_EQ(count("developer"), count("system"));
}

TEST_F(ApiTest, CallsThatTheTemplateLeavesOutAreRefused) {
  const Answer answer = service_.post("/v1/chat/completions", R"({"messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "tool_calls": [{"id": "1", "type": "function",
                                            "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "b"}]})");
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_EQ(error_param(answer), "messages[1].tool_calls");
}

TEST(Api, AFullQueueSaysTryAgain) {
  Service service({.num_blocks = 64, .max_num_seqs = 1, .max_waiting = 2, .step_delay = 5'000'000});
  const std::string slow = R"({"prompt": "a", "max_tokens": 400})";
  HttpClient running(service.port());
  running.send(test::post_text("/v1/completions", slow));
  ASSERT_TRUE(service.wait_until_running());
  HttpClient first(service.port());
  HttpClient second(service.port());
  first.send(test::post_text("/v1/completions", slow));
  second.send(test::post_text("/v1/completions", slow));
  ASSERT_TRUE(service.wait_for([](const StepStats& now) { return now.waiting == 2; }));
  const Answer answer = service.complete(slow);
  EXPECT_EQ(answer.status, 429);
  // Nothing has ended since work began, and three requests wait or run.
  const int wait = std::stoi(answer.headers.at("retry-after"));
  EXPECT_GE(wait, 1);
  EXPECT_LE(wait, 600);
  EXPECT_EQ(error_code(answer), "rate_limit_exceeded");
  EXPECT_EQ(answer.parsed().at("error").at("message"),
            "The queue is full: 2 of 2 places are taken. Try again later.");
  const Answer wide = service.complete(R"({"prompt": "a", "max_tokens": 4, "n": 3})");
  EXPECT_THAT(wide.body, HasSubstr("2 of 2 places are taken, and 3 are asked for."));
  EXPECT_THAT(service.get("/metrics").body, HasSubstr("finished_reason=\"abort\",model_name=\"letters\"} 0"))
      << "what was refused never ran";
  running.close();
  first.close();
  second.close();
  EXPECT_TRUE(service.wait_until_quiet());
}

TEST(Api, PromptsOfARequestThatDoNotFitYetComeLater) {
  Service service({.num_blocks = 64, .max_num_seqs = 1, .max_waiting = 2, .step_delay = 5'000'000});
  HttpClient running(service.port());
  running.send(test::post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 400})"));
  ASSERT_TRUE(service.wait_until_running());
  HttpClient many(service.port());
  many.send(test::post_text("/v1/completions", R"({"prompt": ["a", "b", "c"], "max_tokens": 2})"));
  ASSERT_TRUE(service.wait_for([](const StepStats& now) { return now.waiting == 1; }));
  HttpClient second(service.port());
  second.send(test::post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 2})"));
  ASSERT_TRUE(service.wait_for([](const StepStats& now) { return now.waiting == 2; }))
      << "one place was left";
  running.close();
  EXPECT_EQ(second.read_answer().status, 200);
  const Answer answer = many.read_answer();
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.parsed().at("choices").as_array().size(), 3U);
  EXPECT_EQ(answer.parsed().at("usage").at("completion_tokens"), 6);
  EXPECT_TRUE(service.wait_until_quiet());
}

// 2 run; at most 1 of a request's prompts waits, so that who comes later is next but one.
TEST(Api, ManyPromptsOfOneRequestDoNotStandBeforeOthers) {
  std::atomic<int> begun = 0;         // of the many
  std::atomic<int> begun_before = 0;  // the other one
  Service service(
      {.num_blocks = 64,
       .max_num_seqs = 2,
       .step_delay = 2'000'000,
       .next = [&](std::span<const TokenId> tokens, uint32_t prompt_length, const SamplingParams&) {
         if (tokens.front() == 9) begun_before = begun.load();
         if (tokens.front() == 8 && tokens.size() == prompt_length) ++begun;
         return TokenId{30};
       }});
  std::string prompts = "[8]";
  for (int i = 1; i < 60; ++i) prompts += ", [8]";
  HttpClient many(service.port());
  many.send(test::post_text("/v1/completions",
                            fmt::format(R"({{"prompt": [{}], "max_tokens": 40, "stream": true}})", prompts)));
  ASSERT_TRUE(service.wait_for([](const StepStats& now) { return now.running == 2 && now.waiting == 1; }));
  EXPECT_EQ(service.complete(R"({"prompt": [9], "max_tokens": 1})").status, 200);
  EXPECT_LT(begun_before, 50);
  const Stream stream = read_stream(many.read_answer());
  EXPECT_TRUE(stream.done);
  EXPECT_EQ(stream.finish.size(), 60U);
  EXPECT_EQ(begun, 60);
  EXPECT_TRUE(service.wait_until_quiet());
}

TEST(Api, APromptAmongManyThatIsTooLongIsToldBeforeAnyRuns) {
  Service service;
  const Answer answer = service.complete(
      fmt::format(R"({{"prompt": ["a", "{}"], "max_tokens": 2, "stream": true}})", std::string(600, 'a')));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(error_code(answer), "context_length_exceeded");
  EXPECT_EQ(service.engine().stats().prompt_tokens, 0U);
}

TEST(Api, WhileOthersFillTheQueueTheRestOfARequestWaits) {
  Service service({.num_blocks = 64, .max_num_seqs = 1, .max_waiting = 1, .step_delay = 5'000'000});
  HttpClient many(service.port());
  many.send(test::post_text("/v1/completions", R"({"prompt": ["a", "b"], "max_tokens": 3})"));
  std::vector<std::unique_ptr<HttpClient>> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(std::make_unique<HttpClient>(service.port()));
    others.back()->send(test::post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 100})"));
  }
  const Answer answer = many.read_answer();
  EXPECT_THAT(answer.status, testing::AnyOf(200, 429)) << answer.body;
  for (auto& other : others) EXPECT_THAT(other->read_answer().status, testing::AnyOf(200, 429));
  EXPECT_TRUE(service.wait_until_quiet());
}

TEST(Api, MoreThanCanEverRunAndWaitIsNoMatterOfTime) {
  Service service({.max_num_seqs = 1, .max_waiting = 2});
  const auto refused_for = [&](const char* path, const char* body) {
    const Answer answer = service.post(path, body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_THAT(answer.body, HasSubstr("no more than 3"));
    return error_param(answer);
  };
  EXPECT_EQ(refused_for("/v1/completions", R"({"prompt": ["a", "b", "c", "d"]})"), "prompt");
  EXPECT_EQ(refused_for("/v1/completions", R"({"prompt": ["a", "b"], "n": 2})"), "prompt");
  EXPECT_EQ(refused_for("/v1/completions", R"({"prompt": ["a", "b"], "n": 4})"), "n");
  EXPECT_EQ(refused_for("/v1/completions", R"({"prompt": "a", "n": 4})"), "n");
  EXPECT_EQ(
      refused_for("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}], "n": 4})"),
      "n");
  EXPECT_EQ(service.complete(R"({"prompt": ["a", "b", "c"]})").status, 200);
  EXPECT_EQ(service.complete(R"({"prompt": "a", "n": 3})").status, 200);
}

// A tokenizer whose patterns hit their limits fails the request, not the server.
TEST(Api, WhatCannotBeTokenizedIsRefused) {
  Service service({.failing_tokenizer = true});
  const auto refused_for = [&](const char* path, const char* body) {
    const Answer answer = service.post(path, body);
    EXPECT_EQ(answer.status, 400) << path << " " << body << " " << answer.body;
    EXPECT_THAT(answer.body, testing::AnyOf(HasSubstr("too many steps"), HasSubstr("has no text")));
    return error_param(answer);
  };
  const char* chat = R"({"messages": [{"role": "user", "content": "a!"}]})";
  EXPECT_EQ(refused_for("/v1/completions", R"({"prompt": "a!"})"), "prompt");
  EXPECT_EQ(refused_for("/v1/completions", R"({"prompt": ["a", "a!"], "stream": true})"), "prompt");
  EXPECT_EQ(refused_for("/v1/completions", R"({"prompt": [255], "echo": true})"), "prompt");
  EXPECT_EQ(refused_for("/v1/chat/completions", chat), "messages");
  EXPECT_EQ(refused_for("/tokenize", R"({"prompt": "a!"})"), "prompt");
  EXPECT_EQ(refused_for("/tokenize", chat), "messages");
  EXPECT_EQ(refused_for("/detokenize", R"({"tokens": [255]})"), "tokens");
  EXPECT_EQ(service.complete(R"({"prompt": "a?"})").status, 503);
  EXPECT_EQ(service.post("/tokenize", R"({"prompt": "a?"})").status, 503);
  EXPECT_EQ(service.complete(R"({"prompt": "a", "temperature": 0, "max_tokens": 1})").status, 200);
  EXPECT_TRUE(service.wait_until_quiet());
}

// Sooner or later the token without a text is among the best, if it is not sampled before.
TEST(Api, ATokenWithoutATextFailsItsRequestAlone) {
  Service service({.failing_tokenizer = true});
  const std::string body = R"({"prompt": "abc", "temperature": 0, "max_tokens": 400, "logprobs": 20)";
  const Answer whole = service.complete(body + "}");
  EXPECT_EQ(whole.status, 500) << whole.body;
  EXPECT_EQ(error_code(whole), "internal_error");
  const Answer stream = service.complete(body + R"(, "stream": true})");
  EXPECT_EQ(stream.status, 200);
  EXPECT_TRUE(!stream.complete || stream.body.find("\"error\"") != std::string::npos) << stream.body;
  EXPECT_EQ(service.complete(R"({"prompt": "a", "temperature": 0, "max_tokens": 1})").status, 200);
  EXPECT_TRUE(service.wait_until_quiet());
}

TEST(Api, ManyClientsAtOnceEachGetTheirOwn) {
  Service service({.server = {.http_threads = 2}, .num_blocks = 2048});
  constexpr int kClients = 32;
  const auto body = [](int i, bool stream) {
    return fmt::format(R"({{"prompt": "abc", "seed": {}, "max_tokens": 60, "stream": {}}})", i, stream);
  };
  std::vector<std::string> alone;
  for (int i = 0; i < kClients; ++i) alone.push_back(text_of(service.complete(body(i, false))));
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<HttpClient>(service.port()));
    clients.back()->send(test::post_text("/v1/completions", body(i, true)));
  }
  for (int i = 0; i < kClients; ++i) EXPECT_EQ(read_stream(clients[i]->read_answer()).text[0], alone[i]);
  EXPECT_EQ(std::set<std::string>(alone.begin(), alone.end()).size(), size_t{kClients});
  EXPECT_TRUE(service.wait_until_quiet());
}

TEST(Api, AFailedEngineIsNotHealthy) {
  Service service({.next = [](std::span<const TokenId> tokens, uint32_t, const SamplingParams&) -> TokenId {
    if (tokens.front() == 7) throw std::runtime_error("the executor broke");
    return 30;
  }});
  EXPECT_EQ(service.complete(R"({"prompt": [8]})").status, 200);
  EXPECT_EQ(service.get("/health").status, 200);
  EXPECT_EQ(service.complete(R"({"prompt": [7]})").status, 500);
  const Answer health = service.get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_THAT(health.body, HasSubstr("the executor broke"));
}

TEST(Api, AModelThatFailsEveryRequestIsNotHealthy) {
  Service service({.next = [](std::span<const TokenId> tokens, uint32_t, const SamplingParams&) -> TokenId {
    return tokens.front() == 7 ? -1 : 30;
  }});
  const auto fail = [&] { EXPECT_EQ(service.complete(R"({"prompt": [7], "n": 3})").status, 500); };
  for (uint32_t i = 1; i < Engine::kMostFailures; ++i) fail();
  EXPECT_EQ(service.get("/health").status, 200);
  EXPECT_EQ(service.complete(R"({"prompt": [8]})").status, 200) << "a success begins the count anew";
  for (uint32_t i = 1; i < Engine::kMostFailures; ++i) fail();
  EXPECT_EQ(service.get("/health").status, 200);
  fail();
  const Answer health = service.get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_THAT(health.body,
              HasSubstr(fmt::format("The last {} requests have failed: ", Engine::kMostFailures)));
  EXPECT_EQ(service.complete(R"({"prompt": [8]})").status, 200);
  EXPECT_EQ(service.get("/health").status, 200);
}

// They come with the prompt, so that a client could take the server down with them.
TEST(Api, FailuresOfTheTokenizerAreNoIllness) {
  Service service({.failing_tokenizer = true});
  for (uint32_t i = 0; i < 2 * Engine::kMostFailures; ++i) {
    EXPECT_EQ(service.complete(R"({"prompt": [255]})").status, 500);
  }
  EXPECT_EQ(service.get("/health").status, 200);
}

TEST(Api, WhatThePolicyIgnoresIsRefused) {
  const auto ask = [](Service& service, std::string_view field) {
    return service.complete(fmt::format(R"({{"prompt": "a", "max_tokens": 1, {}}})", field));
  };
  Service fcfs;
  const Answer priority = ask(fcfs, R"("priority": -1)");
  EXPECT_EQ(priority.status, 400);
  EXPECT_EQ(error_param(priority), "priority");
  EXPECT_THAT(priority.body,
              HasSubstr("scheduling policy, fcfs: quire serve takes it with --scheduling-policy priority"));
  const Answer deadline = fcfs.post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "ttft_deadline_ms": 500})");
  EXPECT_EQ(deadline.status, 400);
  EXPECT_EQ(error_param(deadline), "ttft_deadline_ms");
  EXPECT_THAT(deadline.body, HasSubstr("--scheduling-policy slo"));
  EXPECT_EQ(ask(fcfs, R"("priority": 0, "ttft_deadline_ms": null)").status, 200);
  Service by_priority({.scheduling = SchedulingKind::kPriority});
  EXPECT_EQ(ask(by_priority, R"("priority": -1)").status, 200);
  EXPECT_EQ(ask(by_priority, R"("ttft_deadline_ms": 5)").status, 400);
  Service slo({.scheduling = SchedulingKind::kSlo});
  EXPECT_EQ(ask(slo, R"("ttft_deadline_ms": 5)").status, 200);
  EXPECT_EQ(ask(slo, R"("priority": 3)").status, 400);
}

TEST(Api, ATenantHasItsPartOfTheQueueAlone) {
  Service service({.server = {.api_keys = test::keys_of({"alpha", "beta"})},
                   .num_blocks = 64,
                   .max_num_seqs = 1,
                   .max_waiting = 8,
                   .max_waiting_per_tenant = 2,
                   .step_delay = 2'000'000});
  const auto send = [&](HttpClient& client, const char* key, int tokens) {
    client.send(test::post_text("/v1/completions",
                                fmt::format(R"({{"prompt": "a", "max_tokens": {}}})", tokens),
                                fmt::format("Authorization: Bearer {}\r\n", key)));
  };
  HttpClient running(service.port());
  send(running, "alpha", 400);
  ASSERT_TRUE(service.wait_until_running());
  HttpClient first(service.port());
  HttpClient second(service.port());
  send(first, "alpha", 2);
  send(second, "alpha", 2);
  ASSERT_TRUE(service.wait_for([](const StepStats& now) { return now.waiting == 2; }));
  HttpClient third(service.port());
  send(third, "alpha", 2);
  const Answer refused = third.read_answer();
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("Your part of the queue is full: 2 of 2 places are taken."));
  HttpClient other(service.port());
  send(other, "beta", 2);
  ASSERT_TRUE(service.wait_for([](const StepStats& now) { return now.waiting == 3; })) << "its part is free";
  running.close();
  for (HttpClient* client : {&first, &second, &other}) EXPECT_EQ(client->read_answer().status, 200);
  send(third, "alpha", 2);
  EXPECT_EQ(third.read_answer().status, 200) << "places come free again";
  EXPECT_TRUE(service.wait_until_quiet());
}

TEST(Api, ShortRequestsDoNotWaitBehindLongOnes) {
  Service service({.server = {.worker_threads = 1}});
  // Eight long bodies that the one worker for such ones takes seconds over.
  const size_t length = kSanitized ? 1'000'000 : 15'000'000;
  const std::string body = R"({"prompt": ")" + std::string(length, 'a') + R"("})";
  std::vector<std::future<int>> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(std::async(std::launch::async, [&] { return service.post("/tokenize", body).status; }));
  }
  EXPECT_EQ(service.complete(R"({"prompt": "a"})").status, 200);
  size_t waiting = 0;
  for (auto& each : slow) waiting += each.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  EXPECT_GT(waiting, 0U);
  for (auto& each : slow) EXPECT_EQ(each.get(), 200);
}

}  // namespace
}  // namespace quire
