// What the paths answer, over a real socket.
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/serve/api_answer.h"

namespace quire::serve {
namespace {

using test::Answer;
using test::ApiTest;
using test::error_code;
using test::error_param;
using test::HttpClient;
using test::read_stream;
using test::Service;
using test::Stream;
using test::text_of;
using testing::HasSubstr;

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

TEST_F(ApiTest, TokenizeAndDetokenize) {
  const json::value body =
      service_.post("/tokenize", R"({"prompt": "abc", "return_token_strs": true})").parsed();
  EXPECT_EQ(body, parse_json(R"({"count": 3, "max_model_len": 512, "tokens": [26, 27, 28],
                                 "token_strs": ["letter", "letter", "letter"]})",
                             "x"));
  EXPECT_EQ(service_.post("/detokenize", R"({"tokens": [26, 27, 28]})").parsed(),
            parse_json(R"({"prompt": "abc"})", "x"));
  EXPECT_EQ(service_.get("/tokenizer_info").parsed(),
            parse_json(R"({"bos_token": "letter", "eos_token": null})", "x"));
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
  EXPECT_THAT(service_.post("/chat/completions", "{}").body, HasSubstr("; /v1/chat/completions exists"));
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
TEST_F(ApiTest, APromptIsScoredAndCut) {
  const auto choice_of = [&](const std::string& more) {
    return service_.complete(R"({"prompt": "abcdef", "temperature": 0, )" + more + "}")
        .parsed()
        .at("choices")
        .at(0);
  };
  const auto param_of = [&](const std::string& refused) {
    const Answer answer = service_.complete(refused);
    EXPECT_EQ(answer.status, 400U);
    return std::string(answer.parsed().at("error").at("param").as_string());
  };
  const json::value scored = choice_of(R"("max_tokens": 0, "echo": true, "logprobs": 2)");
  EXPECT_EQ(scored.at("text"), "abcdef");
  EXPECT_EQ(scored.at("finish_reason"), "length");
  EXPECT_EQ(scored.at("logprobs").at("token_logprobs"),
            parse_json("[null, -0.5, -0.5, -0.5, -0.5, -0.5]", "x"));
  EXPECT_EQ(scored.at("logprobs").at("text_offset"), parse_json("[0, 1, 2, 3, 4, 5]", "x"));
  const json::value cut =
      choice_of(R"("max_tokens": 2, "echo": true, "truncate_prompt_tokens": 2, "prompt_logprobs": 1)");
  EXPECT_TRUE(std::string(cut.at("text").as_string()).starts_with("ef"));
  EXPECT_EQ(cut.at("prompt_logprobs").as_array().size(), 2U);
  EXPECT_EQ(cut.at("prompt_logprobs").at(1).as_object().begin()->key(), "31");
  const json::value head =
      choice_of(R"("max_tokens": 2, "echo": true, "truncate_prompt_tokens": 2, "truncation_side": "right")");
  EXPECT_TRUE(std::string(head.at("text").as_string()).starts_with("ab"));
  const std::string all(1000, 'a');
  EXPECT_EQ(param_of(fmt::format(R"({{"prompt": "{}", "n": 100, "logprobs": 20, "echo": true}})", all)),
            "echo");
  EXPECT_EQ(param_of(fmt::format(R"({{"prompt": "{}", "n": 100, "prompt_logprobs": 20}})", all)),
            "prompt_logprobs");
  EXPECT_EQ(service_
                .complete(fmt::format(R"({{"prompt": "{}", "max_tokens": 3, "truncate_prompt_tokens": -1}})",
                                      std::string(5000, 'a')))
                .status,
            200U);
}

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
  for (uint32_t i = 1; i < engine::Engine::kMostFailures; ++i) fail();
  EXPECT_EQ(service.get("/health").status, 200);
  EXPECT_EQ(service.complete(R"({"prompt": [8]})").status, 200) << "a success begins the count anew";
  for (uint32_t i = 1; i < engine::Engine::kMostFailures; ++i) fail();
  EXPECT_EQ(service.get("/health").status, 200);
  fail();
  const Answer health = service.get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_THAT(health.body,
              HasSubstr(fmt::format("The last {} requests have failed: ", engine::Engine::kMostFailures)));
  EXPECT_EQ(service.complete(R"({"prompt": [8]})").status, 200);
  EXPECT_EQ(service.get("/health").status, 200);
}

// A client could take the server down with such requests.
TEST(Api, ARequestThatAllowsNoTokenIsAtFaultItselfAndNoIllness) {
  Service service({.next = [](std::span<const TokenId> tokens, uint32_t, const SamplingParams&) -> TokenId {
    return tokens.front() == 7 && tokens.size() > 3 ? -2 : 30;
  }});
  for (uint32_t i = 0; i < 2 * engine::Engine::kMostFailures; ++i) {
    const Answer whole = service.complete(R"({"prompt": [7], "n": 2})");
    EXPECT_EQ(whole.status, 400);
    EXPECT_THAT(whole.body, HasSubstr(R"("type":"invalid_request_error")"));
  }
  const Answer stream = service.complete(R"({"prompt": [7], "stream": true})");
  EXPECT_EQ(stream.status, 200);
  EXPECT_THAT(stream.body, HasSubstr(R"("type":"invalid_request_error")"));
  EXPECT_EQ(service.get("/health").status, 200);
  EXPECT_EQ(service.complete(R"({"prompt": [8]})").status, 200);
}

// They come with the prompt, so that a client could take the server down with them.
TEST(Api, FailuresOfTheTokenizerAreNoIllness) {
  Service service({.failing_tokenizer = true});
  for (uint32_t i = 0; i < 2 * engine::Engine::kMostFailures; ++i) {
    EXPECT_EQ(service.complete(R"({"prompt": [255]})").status, 500);
  }
  EXPECT_EQ(service.get("/health").status, 200);
}

}  // namespace
}  // namespace quire::serve
