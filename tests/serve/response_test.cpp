#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "serve/http.h"
#include "serve/json_text.h"
#include "serve/openai_response.h"
#include "tests/support/letter_tokenizer.h"

namespace quire::serve {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// Letters, but token 200 is the first two bytes of the euro sign, 201 its last, and 202 no UTF-8 at all.
class ByteTokenizer final : public tokenize::Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, bool special) const override {
    return letters_.encode(text, special);
  }
  std::string decode(std::span<const TokenId> ids, bool) const override {
    std::string text;
    for (const TokenId id : ids) text += token_bytes(id);
    return text;
  }
  std::string token_bytes(TokenId id) const override {
    if (id == 200) return "\xE2\x82";
    if (id == 201) return "\xAC";
    if (id == 202) return "\xFF";
    return letters_.token_bytes(id);
  }
  std::string_view token_text(TokenId id) const override { return id == 0 ? "<end>" : "letter"; }
  std::optional<TokenId> find_token(std::string_view) const override { return std::nullopt; }
  bool is_special(TokenId id) const override { return id == 0; }
  size_t vocab_size() const override { return 256; }

 private:
  test::LetterTokenizer letters_{256};
};

AnswerStyle chat_style() {
  return {.kind = AnswerKind::kChat, .id = "chatcmpl-1", .created = 7, .model = "m", .eos = {0}};
}
AnswerStyle completion_style() { return {.id = "cmpl-1", .created = 7, .model = "m", .eos = {0}}; }

SampledToken sampled(TokenId id, float logprob = -0.5F, std::vector<TokenLogprob> top = {}) {
  return {.token = id, .logprob = logprob, .rank = 1, .top = std::move(top)};
}

engine::RequestOutput news(uint32_t index, std::string text, std::vector<SampledToken> tokens,
                           std::optional<control::FinishReason> finish = {}) {
  engine::RequestOutput out;
  out.choices.push_back(
      {.index = index, .text = std::move(text), .tokens = std::move(tokens), .finish = finish});
  out.done = finish.has_value();
  out.prompt_tokens = 5;
  out.cached_tokens = 4;
  out.completion_tokens = 2;
  return out;
}

json::value parse(std::string_view text) { return parse_json(text, "answer"); }

/// The JSON of each event, and "[DONE]" as a string.
std::vector<json::value> events(std::string_view text) {
  std::vector<json::value> out;
  while (!text.empty()) {
    EXPECT_THAT(text, StartsWith("data: "));
    const size_t end = text.find("\n\n");
    EXPECT_NE(end, std::string_view::npos);
    const std::string_view data = text.substr(6, end - 6);
    EXPECT_EQ(data.find('\n'), std::string_view::npos);
    out.push_back(data == "[DONE]" ? json::value("[DONE]") : parse(data));
    text.remove_prefix(end + 2);
  }
  return out;
}

TEST(JsonText, EscapesAndMends) {
  const auto written = [](std::string_view text) {
    std::string out;
    append_json_string(out, text);
    return out;
  };
  EXPECT_EQ(written("a\"b\\c\n\t\r"), R"("a\"b\\c\n\t\r")");
  EXPECT_EQ(written(std::string_view("\0\x1f\x7f", 3)), "\"\\u0000\\u001f\\u007f\"");
  EXPECT_EQ(written("é€😀"), "\"é€😀\"");
  EXPECT_EQ(written("\xE2\x82x"), "\"\uFFFDx\"") << "one mark for a maximal subpart";
  EXPECT_EQ(written("\xFF\xFE"), "\"\uFFFD\uFFFD\"");
  EXPECT_EQ(written("\xED\xA0\x80"), "\"\uFFFD\uFFFD\uFFFD\"") << "a surrogate";
  EXPECT_EQ(written("\xC0\x80"), "\"\uFFFD\uFFFD\"") << "overlong";
  EXPECT_EQ(written("\xF4\x90\x80\x80"), "\"\uFFFD\uFFFD\uFFFD\uFFFD\"") << "past U+10FFFF";
  EXPECT_EQ(written("\xF0\x9F\x98"), "\"\uFFFD\"");
}

TEST(JsonText, LogprobsAreNumbers) {
  const auto written = [](float value) {
    std::string out;
    append_json_logprob(out, value);
    return out;
  };
  EXPECT_EQ(written(-0.5F), "-0.5");
  EXPECT_EQ(parse(written(-1e-7F)).as_double(), -1e-7);
  EXPECT_EQ(written(-std::numeric_limits<float>::infinity()), "-9999");
  EXPECT_EQ(written(std::numeric_limits<float>::quiet_NaN()), "-9999");
}

TEST(WholeAnswer, Chat) {
  const test::LetterTokenizer tokenizer(256);
  AnswerStyle style = chat_style();
  style.n = 2;
  WholeAnswer answer(style, tokenizer, 1);
  engine::RequestOutput first = news(1, "xy", {sampled(1)});
  answer.add(0, first);
  engine::RequestOutput second = news(0, "a\n", {sampled(1)}, control::FinishReason::kStop);
  second.choices[0].stop_string = "END";
  second.done = false;
  answer.add(0, second);
  EXPECT_FALSE(answer.done());
  engine::RequestOutput last = news(1, "z", {sampled(0)}, control::FinishReason::kLength);
  answer.add(0, last);
  ASSERT_TRUE(answer.done());
  EXPECT_EQ(parse(answer.body()), parse(R"({"id": "chatcmpl-1", "object": "chat.completion", "created": 7,
    "model": "m", "choices": [
     {"index": 0, "message": {"role": "assistant", "content": "a\n", "refusal": null}, "logprobs": null,
      "finish_reason": "stop", "stop_reason": "END"},
     {"index": 1, "message": {"role": "assistant", "content": "xyz", "refusal": null}, "logprobs": null,
      "finish_reason": "length", "stop_reason": null}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7,
              "prompt_tokens_details": {"cached_tokens": 4}}})"));
}

TEST(WholeAnswer, CompletionsOfSeveralPromptsInOrder) {
  const test::LetterTokenizer tokenizer(256);
  AnswerStyle style = completion_style();
  style.n = 2;
  style.echo = {"P", "Q"};
  style.return_token_ids = true;
  style.prompt_ids = {{1}, {2}};
  WholeAnswer answer(style, tokenizer, 2);
  for (const size_t prompt : {1, 0}) {
    for (const uint32_t choice : {1, 0}) {
      engine::RequestOutput output =
          news(choice, std::string(1, "abcd"[prompt * 2 + choice]),
               {sampled(static_cast<TokenId>(prompt * 2 + choice))}, control::FinishReason::kStop);
      output.choices[0].stop_token = choice == 0 ? 0 : 9;
      output.done = choice == 0;
      answer.add(prompt, output);
    }
  }
  ASSERT_TRUE(answer.done());
  const json::value body = parse(answer.body());
  const json::array& choices = body.at("choices").as_array();
  ASSERT_EQ(choices.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(choices[i].at("index"), i);
    EXPECT_EQ(choices[i].at("text").as_string(), std::string(i < 2 ? "P" : "Q") + "abcd"[i]);
    EXPECT_EQ(choices[i].at("token_ids"), json::value(json::array{i}));
    EXPECT_EQ(choices[i].at("prompt_token_ids"), json::value(json::array{i < 2 ? 1 : 2}));
    EXPECT_EQ(choices[i].at("stop_reason"), i % 2 == 0 ? json::value(nullptr) : json::value(9))
        << "an end-of-sequence token is no stop reason";
  }
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 10);
  EXPECT_EQ(body.at("usage").at("total_tokens"), 14);
}

TEST(WholeAnswer, CompletionLogprobs) {
  const ByteTokenizer tokenizer;
  AnswerStyle style = completion_style();
  style.logprobs = true;
  WholeAnswer answer(style, tokenizer, 1);
  answer.add(0, news(0, "b", {sampled(1, -0.25F, {{1, -0.25F}, {2, -2.0F}})}));
  answer.add(0, news(0, "€c", {sampled(200), sampled(201, -1, {{202, -0.5F}, {200, -0.75F}}), sampled(2)}));
  answer.add(
      0, news(0, "", {sampled(0, -std::numeric_limits<float>::infinity())}, control::FinishReason::kStop));
  const json::value body = parse(answer.body());
  EXPECT_EQ(body.at("choices").at(0).at("logprobs"), parse(R"({
    "text_offset": [0, 1, 2, 2, 3], "token_logprobs": [-0.25, -0.5, -1, -0.5, -9999],
    "tokens": ["b", "\ufffd", "\ufffd", "c", "<end>"],
    "top_logprobs": [{"b": -0.25, "c": -2}, {"\ufffd": -0.5}, {"\ufffd": -0.5}, {"c": -0.5},
                     {"<end>": -9999}]})"));
}

/// Offsets count characters of the text, which has one for each byte that fits nowhere, and no special
/// tokens.
TEST(WholeAnswer, OffsetsAreThoseOfTheText) {
  const ByteTokenizer tokenizer;
  AnswerStyle style = completion_style();
  style.logprobs = true;
  for (const bool skips : {true, false}) {
    style.skips_specials = skips;
    WholeAnswer answer(style, tokenizer, 1);
    answer.add(0, news(0, "\ufffdb", {sampled(201), sampled(0), sampled(1), sampled(2)},
                       control::FinishReason::kStop));
    EXPECT_EQ(parse(answer.body()).at("choices").at(0).at("logprobs").at("text_offset"),
              parse(skips ? "[0, 1, 1, 2]" : "[0, 1, 6, 7]"));
  }
}

TEST(WholeAnswer, ChatLogprobsHaveBytes) {
  const ByteTokenizer tokenizer;
  AnswerStyle style = chat_style();
  style.logprobs = true;
  WholeAnswer answer(style, tokenizer, 1);
  answer.add(0, news(0, "b", {sampled(200, -1, {{1, -0.5F}})}, control::FinishReason::kLength));
  EXPECT_EQ(parse(answer.body()).at("choices").at(0).at("logprobs"), parse(R"({"content": [
    {"token": "\ufffd", "logprob": -1, "bytes": [226, 130],
     "top_logprobs": [{"token": "b", "logprob": -0.5, "bytes": [98]}]}], "refusal": null})"));
}

TEST(WholeAnswer, TokensAsIds) {
  const ByteTokenizer tokenizer;
  AnswerStyle style = completion_style();
  style.logprobs = true;
  style.tokens_as_ids = true;
  WholeAnswer answer(style, tokenizer, 1);
  answer.add(0, news(0, "b", {sampled(202, -1, {{200, -0.5F}})}, control::FinishReason::kLength));
  EXPECT_EQ(parse(answer.body()).at("choices").at(0).at("logprobs").at("top_logprobs"),
            parse(R"([{"token_id:200": -0.5, "token_id:202": -1}])"));
}

TEST(StreamedAnswer, Chat) {
  const test::LetterTokenizer tokenizer(256);
  AnswerStyle style = chat_style();
  style.include_usage = true;
  StreamedAnswer answer(style, tokenizer, 1);
  std::string out;
  answer.add(0, news(0, "", {sampled(1)}), out);
  answer.add(0, news(0, "a\n\n", {sampled(1)}), out);
  EXPECT_FALSE(answer.done());
  answer.add(0, news(0, "", {sampled(0)}, control::FinishReason::kStop), out);
  EXPECT_TRUE(answer.done());
  answer.finish(out);
  const auto found = events(out);
  ASSERT_EQ(found.size(), 6U);
  EXPECT_EQ(found[0],
            parse(R"({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m",
    "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null,
                 "finish_reason": null}], "usage": null})"));
  EXPECT_EQ(found[1].at("choices").at(0).at("delta"), parse(R"({"content": ""})"));
  EXPECT_EQ(found[2].at("choices").at(0).at("delta"), parse(R"({"content": "a\n\n"})"));
  EXPECT_EQ(found[3].at("choices").at(0).at("delta"), parse("{}"));
  EXPECT_EQ(found[3].at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(found[4].at("choices"), parse("[]"));
  EXPECT_EQ(found[4].at("usage").at("total_tokens"), 7);
  EXPECT_EQ(found[5], "[DONE]");
}

TEST(StreamedAnswer, CompletionWithEchoAndLogprobs) {
  const ByteTokenizer tokenizer;
  AnswerStyle style = completion_style();
  style.n = 2;
  style.echo = {"€u"};
  style.logprobs = true;
  style.include_usage = true;
  style.continuous_usage = true;
  StreamedAnswer answer(style, tokenizer, 1);
  std::string out;
  engine::RequestOutput both = news(0, "a", {sampled(26)});
  both.choices.push_back({.index = 1, .text = "", .tokens = {sampled(200)}});
  answer.add(0, both, out);
  engine::RequestOutput more = news(0, "b", {sampled(27)});
  more.completion_tokens = 3;
  answer.add(0, more, out);
  const auto found = events(out);
  ASSERT_EQ(found.size(), 3U) << out;
  EXPECT_EQ(found[0].at("choices").at(0).at("text"), "€ua");
  EXPECT_EQ(found[0].at("choices").at(0).at("logprobs").at("text_offset"), parse("[2]"));
  EXPECT_EQ(found[0].at("usage").at("prompt_tokens"), 5);
  EXPECT_EQ(found[1].at("choices").at(0).at("index"), 1);
  EXPECT_EQ(found[1].at("choices").at(0).at("text"), "€u");
  EXPECT_EQ(found[1].at("choices").at(0).at("logprobs").at("tokens"), parse(R"(["\ufffd"])"));
  EXPECT_EQ(found[2].at("choices").at(0).at("text"), "b");
  EXPECT_EQ(found[2].at("choices").at(0).at("logprobs").at("text_offset"), parse("[3]"));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(found[i].at("usage").at("completion_tokens"), i + 1);
}

/// "<end>€a" as four tokens; what the model said of the last three.
AnswerStyle scored_style() {
  AnswerStyle style = completion_style();
  style.logprobs = true;
  style.echo = {"€a"};
  style.echo_logprobs = 1;
  style.prompt_ids = {{0, 200, 201, 26}};
  return style;
}
PromptYield scores() {
  return {.rows = {{0, sampled(200, -1.5F, {{26, -0.25F}, {200, -1.5F}})},
                   {1, sampled(201, -0.125F, {{201, -0.125F}, {27, -3.5F}})},
                   {2, {.token = 26, .logprob = -4.5F, .rank = 9, .top = {{27, -0.5F}, {28, -0.75F}}}}},
          .pooled = {}};
}

TEST(WholeAnswer, AnEchoHasItsLogprobs) {
  const ByteTokenizer tokenizer;
  const AnswerStyle style = scored_style();
  WholeAnswer answer(style, tokenizer, 1);
  engine::RequestOutput part;
  part.prompt = scores();
  part.prompt.rows.resize(1);
  answer.add(0, part);
  part.prompt = scores();
  part.prompt.rows.erase(part.prompt.rows.begin());
  answer.add(0, part);
  answer.add(0, news(0, "b", {sampled(27, -0.5F, {{27, -0.5F}})}, control::FinishReason::kLength));
  const json::value choice = parse(answer.body()).at("choices").at(0);
  EXPECT_EQ(choice.at("text"), "€ab");
  EXPECT_EQ(choice.at("logprobs"), parse(R"({"text_offset": [0, 0, 1, 1, 2],
      "token_logprobs": [null, -1.5, -0.125, -4.5, -0.5], "tokens": ["<end>", "\ufffd", "\ufffd", "a", "b"],
      "top_logprobs": [null, {"a": -0.25, "\ufffd": -1.5}, {"\ufffd": -0.125}, {"b": -0.5, "a": -4.5},
                       {"b": -0.5}]})"));
}

TEST(WholeAnswer, PromptLogprobsAreThoseOfVllm) {
  const ByteTokenizer tokenizer;
  AnswerStyle style = scored_style();
  style.logprobs = false;
  style.echo = {};
  style.echo_logprobs = -1;
  style.prompt_logprobs = 2;
  const json::value expected = parse(R"([null,
      {"200": {"logprob": -1.5, "rank": 1, "decoded_token": "\ufffd"},
       "26": {"logprob": -0.25, "rank": 1, "decoded_token": "a"}},
      {"201": {"logprob": -0.125, "rank": 1, "decoded_token": "\ufffd"},
       "27": {"logprob": -3.5, "rank": 2, "decoded_token": "b"}},
      {"26": {"logprob": -4.5, "rank": 9, "decoded_token": "a"},
       "27": {"logprob": -0.5, "rank": 1, "decoded_token": "b"},
       "28": {"logprob": -0.75, "rank": 2, "decoded_token": "c"}}])");
  for (const AnswerKind kind : {AnswerKind::kCompletion, AnswerKind::kChat}) {
    style.kind = kind;
    WholeAnswer answer(style, tokenizer, 1);
    engine::RequestOutput all = news(0, "b", {sampled(27)}, control::FinishReason::kLength);
    all.prompt = scores();
    answer.add(0, all);
    const json::value body = parse(answer.body());
    const json::value& where = kind == AnswerKind::kChat ? body : body.at("choices").at(0);
    EXPECT_EQ(where.at("prompt_logprobs"), expected);
    EXPECT_TRUE(body.at("choices").at(0).at("logprobs").is_null());
  }
}

TEST(StreamedAnswer, AnEchoHasItsLogprobsInTheFirstChunkOfEachChoice) {
  const ByteTokenizer tokenizer;
  AnswerStyle style = scored_style();
  style.n = 2;
  StreamedAnswer answer(style, tokenizer, 1);
  std::string out;
  engine::RequestOutput prompt;
  prompt.prompt = scores();
  answer.add(0, prompt, out);
  EXPECT_EQ(out, "");
  answer.add(0, news(0, "b", {sampled(27)}), out);
  answer.add(0, news(1, "", {}, control::FinishReason::kLength), out);
  answer.add(0, news(0, "c", {sampled(28)}), out);
  const auto found = events(out);
  ASSERT_EQ(found.size(), 3U) << out;
  EXPECT_EQ(found[0].at("choices").at(0).at("logprobs").at("text_offset"), parse("[0, 0, 1, 1, 2]"));
  EXPECT_EQ(found[1].at("choices").at(0).at("logprobs").at("token_logprobs"),
            parse("[null, -1.5, -0.125, -4.5]"));
  EXPECT_EQ(found[2].at("choices").at(0).at("logprobs").at("text_offset"), parse("[3]"));
}

TEST(StreamedAnswer, ATokenWithoutATextHasItsChunk) {
  const test::LetterTokenizer tokenizer(256);
  for (const AnswerStyle& style : {completion_style(), chat_style()}) {
    StreamedAnswer answer(style, tokenizer, 1);
    std::string out;
    answer.add(0, news(0, "", {sampled(1)}), out);
    answer.add(0, news(0, "a", {sampled(1)}), out);
    answer.add(0, news(0, "", {}), out);
    const auto found = events(out);
    const size_t first = style.kind == AnswerKind::kChat ? 1 : 0;
    ASSERT_EQ(found.size(), first + 2) << out;
    const json::object& choice = found[first].at("choices").at(0).as_object();
    EXPECT_EQ(first == 1 ? choice.at("delta").at("content") : choice.at("text"), "");
  }
}

TEST(StreamedAnswer, PromptIdsComeOnce) {
  const test::LetterTokenizer tokenizer(256);
  AnswerStyle style = completion_style();
  style.return_token_ids = true;
  style.prompt_ids = {{1, 2}, {3}};
  StreamedAnswer completion(style, tokenizer, 2);
  std::string out;
  for (const size_t prompt : {1, 0, 1}) completion.add(prompt, news(0, "a", {sampled(9)}), out);
  auto found = events(out);
  ASSERT_EQ(found.size(), 3U) << out;
  EXPECT_EQ(found[0].at("choices").at(0).at("prompt_token_ids"), parse("[3]"));
  EXPECT_EQ(found[0].at("choices").at(0).at("token_ids"), parse("[9]"));
  EXPECT_EQ(found[1].at("choices").at(0).at("prompt_token_ids"), parse("[1, 2]"));
  EXPECT_FALSE(found[2].at("choices").at(0).as_object().contains("prompt_token_ids"));
}

TEST(StreamedAnswer, AFailureEndsIt) {
  const test::LetterTokenizer tokenizer(256);
  const AnswerStyle style = completion_style();
  StreamedAnswer answer(style, tokenizer, 2);
  std::string out;
  engine::RequestOutput failure;
  failure.done = true;
  failure.error = RequestError{RequestErrorCode::kInternal, "broken", ""};
  answer.add(1, failure, out);
  ASSERT_TRUE(answer.done());
  answer.finish(out);
  const auto found = events(out);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].at("error").at("message"), "broken");
}

TEST(StreamedAnswer, WhatAFailureCutsHasNoFinishReason) {
  const test::LetterTokenizer tokenizer(256);
  AnswerStyle style = completion_style();
  style.n = 3;
  for (const control::FinishReason reason : {control::FinishReason::kAbort, control::FinishReason::kError}) {
    StreamedAnswer answer(style, tokenizer, 1);
    std::string out;
    engine::RequestOutput failure;
    failure.done = true;
    failure.error = RequestError{RequestErrorCode::kShuttingDown, "late", ""};
    failure.choices.resize(3);
    for (uint32_t i = 0; i < 3; ++i) failure.choices[i].index = i;
    failure.choices[0].text = "held back";
    failure.choices[0].finish = reason;
    failure.choices[1].finish = reason;
    failure.choices[2].finish = control::FinishReason::kStop;
    answer.add(0, failure, out);
    answer.add(0, news(1, "too late", {}), out);
    const auto found = events(out);
    ASSERT_EQ(found.size(), 3U) << out;
    EXPECT_EQ(found[0].at("choices").at(0).at("text"), "held back");
    EXPECT_TRUE(found[0].at("choices").at(0).at("finish_reason").is_null());
    EXPECT_EQ(found[1].at("choices").at(0).at("finish_reason"), "stop");
    EXPECT_EQ(found[2].at("error").at("code"), "shutting_down");
  }
}

TEST(Errors, StatusAndBody) {
  const auto status = [](RequestErrorCode code) { return error_answer({code, "m", "p"}).status; };
  EXPECT_EQ(status(RequestErrorCode::kInvalid), 400U);
  EXPECT_EQ(status(RequestErrorCode::kTooLong), 400U);
  EXPECT_EQ(status(RequestErrorCode::kNotFound), 404U);
  EXPECT_EQ(status(RequestErrorCode::kQueueFull), 429U);
  EXPECT_EQ(status(RequestErrorCode::kShuttingDown), 503U);
  EXPECT_EQ(status(RequestErrorCode::kInternal), 500U);
  EXPECT_EQ(parse(error_answer({RequestErrorCode::kTooLong, "m\"", ""}).body),
            parse(R"({"error": {"message": "m\"", "type": "invalid_request_error", "param": null,
                      "code": "context_length_exceeded"}})"));
}

TEST(PercentDecode, TakesWellFormedTextAlone) {
  EXPECT_EQ(percent_decode("/v1/a%2Fb%20"), "/v1/a/b ");
  EXPECT_EQ(percent_decode("%"), std::nullopt);
  EXPECT_EQ(percent_decode("%4"), std::nullopt);
  EXPECT_EQ(percent_decode("%zz"), std::nullopt);
}

TEST(ResponseHead, SaysHowTheBodyEnds) {
  HttpResponse response{.body = "abc"};
  response.headers.emplace_back("Retry-After", "1");
  const std::string with_length = response_head(response, Framing::kLength, true);
  EXPECT_THAT(with_length, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(with_length, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(with_length, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(with_length, EndsWith("\r\n\r\n"));
  EXPECT_THAT(with_length, testing::Not(HasSubstr("Connection")));
  EXPECT_THAT(response_head(response, Framing::kChunked, false),
              HasSubstr("Transfer-Encoding: chunked\r\nRetry-After: 1\r\nConnection: close\r\n"));
  EXPECT_THAT(response_head(response, Framing::kUntilClose, false),
              testing::Not(HasSubstr("Content-Length")));
}

/// A chat whose model writes calls as Hermes does, after a thought.
AnswerStyle tool_style() {
  AnswerStyle style = chat_style();
  auto rules = std::make_shared<AnswerRules>();
  rules->format.tools = answer::find_tool_format("hermes");
  rules->format.reasoning = answer::find_reasoning_format("think");
  rules->tools = {{"f", {}}, {"g", {}}};
  style.rules = std::move(rules);
  return style;
}

/// The message that the deltas of a stream make, as a client joins them; its ids left out.
json::object joined(const std::vector<json::value>& chunks, std::string& finish) {
  json::object message;
  json::array calls;
  const auto append = [](json::value& to, const json::value& more) {
    to = std::string(to.is_string() ? to.as_string() : "") + std::string(more.as_string());
  };
  for (const json::value& chunk : chunks) {
    if (chunk.is_string()) continue;
    const json::object& choice = chunk.at("choices").at(0).as_object();
    if (choice.at("finish_reason").is_string()) finish = choice.at("finish_reason").as_string();
    for (const auto& [key, value] : choice.at("delta").as_object()) {
      if (key != "tool_calls") {
        append(message[key], value);
        continue;
      }
      for (const json::value& call : value.as_array()) {
        const size_t index = call.at("index").to_number<size_t>();
        EXPECT_EQ(call.as_object().contains("id"), index == calls.size());
        if (index == calls.size()) calls.push_back({{"name", ""}, {"arguments", ""}});
        for (const auto& [name, text] : call.at("function").as_object()) append(calls[index].at(name), text);
      }
    }
  }
  if (!calls.empty()) message["calls"] = std::move(calls);
  return message;
}

TEST(ToolAnswer, StreamedIsWholeWhereverItIsCut) {
  const AnswerStyle style = tool_style();
  const ByteTokenizer tokenizer;
  const std::string text =
      "<think>\nWhich?\n</think>\n\nI call.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"e\"}}\n"
      "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
  for (size_t step = 1; step < 12; ++step) {
    WholeAnswer whole(style, tokenizer, 1);
    StreamedAnswer stream(style, tokenizer, 1);
    std::string out;
    for (size_t at = 0; at < text.size(); at += step) {
      const bool last = at + step >= text.size();
      const auto reason = last ? std::optional(control::FinishReason::kStop) : std::nullopt;
      whole.add(0, news(0, text.substr(at, step), {sampled(65)}, reason));
      stream.add(0, news(0, text.substr(at, step), {sampled(65)}, reason), out);
    }
    stream.finish(out);
    const json::value choice = parse(whole.body()).at("choices").at(0);
    const json::object& message = choice.at("message").as_object();
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
    EXPECT_EQ(message.at("reasoning_content"), "Which?");
    EXPECT_EQ(message.at("reasoning"), "Which?");
    EXPECT_EQ(message.at("content"), "I call.");
    ASSERT_EQ(message.at("tool_calls").as_array().size(), 2U);
    EXPECT_EQ(message.at("tool_calls").at(0).at("type"), "function");
    EXPECT_THAT(std::string(message.at("tool_calls").at(0).at("id").as_string()), StartsWith("call_"));
    EXPECT_EQ(message.at("tool_calls").at(0).at("function"),
              parse(R"({"name": "f", "arguments": "{\"a\": \"e\"}"})"));
    std::string finish;
    const json::object made = joined(events(out), finish);
    EXPECT_EQ(finish, "tool_calls");
    EXPECT_EQ(made.at("reasoning_content"), "Which?");
    EXPECT_EQ(made.at("content"), "I call.");
    EXPECT_EQ(made.at("calls"), parse(R"([{"name": "f", "arguments": "{\"a\": \"e\"}"},
                                          {"name": "g", "arguments": "{}"}])"));
  }
}

TEST(ToolAnswer, EndsAsItIsIfACallIsCutOff) {
  const AnswerStyle style = tool_style();
  const ByteTokenizer tokenizer;
  const auto answer = [&](std::string text, control::FinishReason reason) {
    WholeAnswer whole(style, tokenizer, 1);
    whole.add(0, news(0, std::move(text), {sampled(65)}, reason));
    return parse(whole.body()).at("choices").at(0);
  };
  const json::value cut =
      answer("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"", control::FinishReason::kLength);
  EXPECT_EQ(cut.at("finish_reason"), "length");
  EXPECT_EQ(cut.at("message").at("tool_calls").at(0).at("function").at("arguments"), "{\"a\"");
  EXPECT_TRUE(cut.at("message").at("content").is_null());
  const json::value before = answer("<tool_call>{\"name\": \"f", control::FinishReason::kLength);
  EXPECT_EQ(before.at("message").at("content"), "<tool_call>{\"name\": \"f");
  EXPECT_FALSE(before.at("message").as_object().contains("tool_calls"));
  const json::value stopped =
      answer("<tool_call>{\"name\": \"f\", \"arguments\": {", control::FinishReason::kStop);
  EXPECT_EQ(stopped.at("finish_reason"), "stop");
  const json::value whole =
      answer("<tool_call>{\"name\": \"f\", \"arguments\": {}}", control::FinishReason::kLength);
  EXPECT_EQ(whole.at("finish_reason"), "length");
}

TEST(ToolAnswer, ReasoningThatIsNotWantedIsLeftOut) {
  AnswerStyle style = tool_style();
  auto rules = std::make_shared<AnswerRules>(*style.rules);
  rules->include_reasoning = false;
  style.rules = std::move(rules);
  const ByteTokenizer tokenizer;
  WholeAnswer whole(style, tokenizer, 1);
  StreamedAnswer stream(style, tokenizer, 1);
  std::string out;
  for (const char* text : {"<think>", "Hm", "</think>", "Yes"}) {
    const auto reason = text[0] == 'Y' ? std::optional(control::FinishReason::kStop) : std::nullopt;
    whole.add(0, news(0, text, {sampled(65)}, reason));
    stream.add(0, news(0, text, {sampled(65)}, reason), out);
  }
  EXPECT_THAT(out, testing::Not(HasSubstr("Hm")));
  EXPECT_THAT(whole.body(), testing::Not(HasSubstr("Hm")));
  EXPECT_THAT(whole.body(), HasSubstr("\"content\":\"Yes\""));
}

}  // namespace
}  // namespace quire::serve
