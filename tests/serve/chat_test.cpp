// What the paths for chats answer, over a real socket.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/serve/api_answer.h"

namespace quire::serve {
namespace {

using test::Answer;
using test::ApiTest;
using test::error_param;
using test::read_stream;
using test::Service;
using test::Stream;
using test::text_of;
using testing::HasSubstr;

class ChatApi : public ApiTest {};

TEST_F(ChatApi, TokenIdsOfAChatStandWhereVllmHasThem) {
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

TEST_F(ChatApi, AnAnswerShowsItsMessageAndItsPromptOnRequest) {
  const std::string body =
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "So,"}],
          "continue_final_message": true, "max_tokens": 3, "seed": 1, "request_id": "mine")";
  const std::string more = R"(, "echo": true, "return_prompt_text": true)";
  const auto content = [](const json::value& answer) {
    return std::string(answer.at("choices").at(0).at("message").at("content").as_string());
  };
  const json::value bare = service_.post("/v1/chat/completions", body + "}").parsed();
  const json::value whole = service_.post("/v1/chat/completions", body + more + "}").parsed();
  EXPECT_EQ(bare.at("id"), "chatcmpl-mine");
  EXPECT_EQ(content(whole), "So," + content(bare));
  EXPECT_FALSE(bare.as_object().contains("prompt_text"));
  const std::string prompt(whole.at("prompt_text").as_string());
  EXPECT_TRUE(prompt.ends_with("So,")) << prompt;
  const Stream stream =
      read_stream(service_.post("/v1/chat/completions", body + more + R"(, "stream": true})"));
  EXPECT_EQ(stream.text.at(0), content(whole));
  for (size_t i = 0; i < stream.chunks.size(); ++i) {
    EXPECT_EQ(stream.chunks[i].as_object().contains("prompt_text"), i == 0);
  }
  EXPECT_EQ(stream.chunks.front().at("prompt_text"), whole.at("prompt_text"));
}

TEST_F(ChatApi, Chat) {
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

TEST_F(ChatApi, AChatCanGoOnWithItsLastMessage) {
  const json::value body = service_
                               .post("/tokenize", R"({"continue_final_message": true, "messages": [
      {"role": "user", "content": "a"}, {"role": "assistant", "content": "b "}]})")
                               .parsed();
  // "user a.assistant b " and nothing of the template after it.
  EXPECT_EQ(body.at("count"), std::string_view("user a.assistant b ").size());
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
TEST_F(ChatApi, ADevelopersMessageIsTheSystems) {
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

TEST_F(ChatApi, CallsThatTheTemplateLeavesOutAreRefused) {
  const Answer answer = service_.post("/v1/chat/completions", R"({"messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "tool_calls": [{"id": "1", "type": "function",
                                            "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "b"}]})");
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_EQ(error_param(answer), "messages[1].tool_calls");
}

}  // namespace
}  // namespace quire::serve
