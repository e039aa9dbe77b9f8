#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "serve/openai_schema.h"

namespace quire::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

const SchemaContext kContext{.vocab_size = 100};

json::value parsed(const std::string& text) { return parse_json(text, "test"); }

/// A completion body with one more field.
std::string completion_with(const std::string& field) { return R"({"prompt": "a", )" + field + "}"; }
std::string chat_with(const std::string& field) {
  return R"({"messages": [{"role": "user", "content": "hi"}], )" + field + "}";
}

GenerationOptions completion_options(const std::string& field, const SchemaContext& context = kContext) {
  auto request = parse_completion(parsed(completion_with(field)), context);
  EXPECT_TRUE(request.has_value()) << field << ": " << (request ? "" : request.error().message);
  return request ? request->options : GenerationOptions{};
}

/// The field that a completion (or a chat) with `field` is refused for; empty if it is taken.
std::string completion_fault(const std::string& field) {
  auto request = parse_completion(parsed(completion_with(field)), kContext);
  if (!request) {
    EXPECT_EQ(request.error().code, RequestErrorCode::kInvalid);
    EXPECT_THAT(request.error().message, HasSubstr(request.error().param));
  }
  return request ? "" : request.error().param;
}
std::string chat_fault(const std::string& field) {
  auto request = parse_chat(parsed(chat_with(field)), kContext);
  return request ? "" : request.error().param;
}

TEST(CompletionSchema, ARequestMayBringItsId) {
  EXPECT_EQ(completion_options(R"("request_id": "a-1_b.c:d")").request_id, "a-1_b.c:d");
  for (const char* bad : {"\"\"", "\"a b\"", "\"a\\n\"", "\"\u00e4\"", "7"}) {
    EXPECT_EQ(completion_fault(fmt::format("\"request_id\": {}", bad)), "request_id") << bad;
  }
  EXPECT_EQ(completion_fault(fmt::format("\"request_id\": \"{}\"", std::string(128, 'a'))), "");
  EXPECT_EQ(completion_fault(fmt::format("\"request_id\": \"{}\"", std::string(129, 'a'))), "request_id");
}

TEST(CompletionSchema, APromptIsCutAtEitherSide) {
  EXPECT_FALSE(completion_options(R"("truncation_side": "left")").truncate_right);
  EXPECT_TRUE(completion_options(R"("truncation_side": "right")").truncate_right);
  EXPECT_EQ(completion_fault(R"("truncation_side": "middle")"), "truncation_side");
}

TEST(ChatSchema, OnlyAMessageOfTheAnswersRoleIsEchoed) {
  const auto echo = [](const char* role, const char* more) {
    const auto request =
        parse_chat(parsed(fmt::format(R"({{"messages": [{{"role": "{}", "content": "a"}}], "echo": true{}}})",
                                      role, more)),
                   kContext);
    EXPECT_TRUE(request.has_value());
    return request ? request->echo : std::nullopt;
  };
  EXPECT_EQ(echo("user", ""), std::nullopt);
  EXPECT_EQ(echo("assistant", ""), "a");
  EXPECT_EQ(echo("user", R"(, "add_generation_prompt": false)"), "a");
  EXPECT_EQ(echo("assistant", R"(, "continue_final_message": true)"), "a");
}

TEST(CompletionSchema, DefaultsAreOpenAIs) {
  const auto request = parse_completion(parsed(R"({"prompt": "hello"})"), kContext);
  ASSERT_TRUE(request);
  const engine::GenerationRequest& generation = request->options.generation;
  EXPECT_EQ(generation.n, 1U);
  EXPECT_EQ(generation.max_tokens, 16U);
  EXPECT_EQ(generation.sampling.temperature, 1.0F);
  EXPECT_EQ(generation.sampling.top_k, 0);
  EXPECT_EQ(generation.sampling.top_p, 1.0F);
  EXPECT_EQ(generation.sampling.num_logprobs, -1);
  EXPECT_TRUE(generation.skip_special_tokens);
  EXPECT_FALSE(request->options.has_seed);
  EXPECT_FALSE(request->options.stream);
  EXPECT_FALSE(request->echo);
  ASSERT_EQ(request->prompts.size(), 1U);
  EXPECT_EQ(std::get<std::string>(request->prompts[0]), "hello");
}

TEST(CompletionSchema, LeftOutSamplingFieldsAreTheModels) {
  const SchemaContext context{
      .vocab_size = 100,
      .defaults = {
          .temperature = 0.7F, .top_k = 40, .top_p = 0.9F, .min_p = 0.1F, .repetition_penalty = 1.1F}};
  const SamplingParams left_out = completion_options(R"("n": 1)", context).generation.sampling;
  EXPECT_EQ(left_out.temperature, 0.7F);
  EXPECT_EQ(left_out.top_p, 0.9F);
  EXPECT_EQ(left_out.min_p, 0.1F);
  EXPECT_EQ(left_out.repetition_penalty, 1.1F);
  EXPECT_EQ(left_out.top_k, 40);
  const SamplingParams given =
      completion_options(R"("temperature": 0, "top_p": 1, "top_k": -1, "min_p": null)", context)
          .generation.sampling;
  EXPECT_EQ(given.temperature, 0.0F);
  EXPECT_EQ(given.top_p, 1.0F);
  EXPECT_EQ(given.top_k, 0);
  EXPECT_EQ(given.min_p, 0.1F) << "null counts as left out";
}

TEST(CompletionSchema, ReadsEveryField) {
  const GenerationOptions options = completion_options(R"(
    "model": "m", "n": 3, "max_tokens": 7, "temperature": 0.5, "top_p": 0.25, "top_k": 5, "min_p": 0.5,
    "repetition_penalty": 1.5, "presence_penalty": -2, "frequency_penalty": 2.0, "seed": -1,
    "stop": ["x", "yy"], "stop_token_ids": [3, 4.0], "include_stop_str_in_output": true, "ignore_eos": true,
    "skip_special_tokens": false, "logit_bias": {"7": -100, "3": 1.5}, "logprobs": 4, "stream": true,
    "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "user": "u",
    "cache_salt": "s", "return_token_ids": true, "return_tokens_as_token_ids": true, "priority": -3,
    "ttft_deadline_ms": 500)");
  const engine::GenerationRequest& generation = options.generation;
  EXPECT_EQ(options.model, "m");
  EXPECT_EQ(generation.n, 3U);
  EXPECT_EQ(generation.max_tokens, 7U);
  EXPECT_EQ(generation.sampling.temperature, 0.5F);
  EXPECT_EQ(generation.sampling.top_p, 0.25F);
  EXPECT_EQ(generation.sampling.top_k, 5);
  EXPECT_EQ(generation.sampling.min_p, 0.5F);
  EXPECT_EQ(generation.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(generation.sampling.presence_penalty, -2.0F);
  EXPECT_EQ(generation.sampling.frequency_penalty, 2.0F);
  EXPECT_TRUE(options.has_seed);
  EXPECT_EQ(generation.sampling.seed, UINT64_MAX);
  EXPECT_THAT(generation.stop, ElementsAre("x", "yy"));
  EXPECT_THAT(generation.stop_token_ids, ElementsAre(3, 4));
  EXPECT_TRUE(generation.include_stop_str_in_output);
  EXPECT_TRUE(generation.ignore_eos);
  EXPECT_FALSE(generation.skip_special_tokens);
  EXPECT_THAT(generation.sampling.logit_bias, ElementsAre(Pair(3, 1.5F), Pair(7, -100.0F)));
  EXPECT_EQ(generation.sampling.num_logprobs, 4);
  EXPECT_TRUE(options.stream && options.include_usage && options.continuous_usage);
  EXPECT_TRUE(options.return_token_ids && options.return_tokens_as_token_ids);
  EXPECT_EQ(options.user, "u");
  EXPECT_EQ(options.cache_salt, "s");
}

TEST(CompletionSchema, SmallTemperaturesAreRaised) {
  EXPECT_EQ(completion_options(R"("temperature": 1e-30)").generation.sampling.temperature, kMinTemperature);
  EXPECT_EQ(completion_options(R"("temperature": 0.0)").generation.sampling.temperature, 0.0F);
}

struct Fault {
  const char* body;
  const char* param;
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.body; }

// Wrong type, below, above, for every field with a range. Also good for chat, unless `completions only`.
class SharedFaults : public testing::TestWithParam<Fault> {};

TEST_P(SharedFaults, AreNamed) {
  EXPECT_EQ(completion_fault(GetParam().body), GetParam().param);
  EXPECT_EQ(chat_fault(GetParam().body), GetParam().param);
}

INSTANTIATE_TEST_SUITE_P(
    All, SharedFaults,
    testing::Values(
        Fault{R"("model": 1)", "model"}, Fault{R"("n": 0)", "n"}, Fault{R"("n": 129)", "n"},
        Fault{R"("n": 1.5)", "n"}, Fault{R"("n": "2")", "n"}, Fault{R"("n": true)", "n"},
        Fault{R"("n": -1)", "n"}, Fault{R"("n": 1e300)", "n"}, Fault{R"("max_tokens": -1)", "max_tokens"},
        Fault{R"("max_tokens": -1)", "max_tokens"}, Fault{R"("max_tokens": 2147483648)", "max_tokens"},
        Fault{R"("temperature": -0.1)", "temperature"}, Fault{R"("temperature": 2.1)", "temperature"},
        Fault{R"("temperature": "hot")", "temperature"}, Fault{R"("temperature": 1e999)", "temperature"},
        Fault{R"("top_p": 0)", "top_p"}, Fault{R"("top_p": 1e-60)", "top_p"},
        Fault{R"("top_p": 1.01)", "top_p"}, Fault{R"("top_k": -2)", "top_k"},
        Fault{R"("top_k": 0.5)", "top_k"}, Fault{R"("min_p": -0.1)", "min_p"},
        Fault{R"("min_p": 1.1)", "min_p"}, Fault{R"("repetition_penalty": 0)", "repetition_penalty"},
        Fault{R"("repetition_penalty": -1)", "repetition_penalty"},
        Fault{R"("repetition_penalty": 11)", "repetition_penalty"},
        Fault{R"("presence_penalty": 2.5)", "presence_penalty"},
        Fault{R"("frequency_penalty": -2.5)", "frequency_penalty"}, Fault{R"("seed": 1.5)", "seed"},
        Fault{R"("seed": "1")", "seed"}, Fault{R"("seed": 18446744073709551616)", "seed"},
        Fault{R"("stop": 1)", "stop"}, Fault{R"("stop": "")", "stop"},
        Fault{R"("stop": ["a", ""])", "stop[1]"}, Fault{R"("stop": ["a", 1])", "stop[1]"},
        Fault{R"("stop": ["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])", "stop"},
        Fault{R"("stop_token_ids": 3)", "stop_token_ids"},
        Fault{R"("stop_token_ids": [100])", "stop_token_ids[0]"},
        Fault{R"("stop_token_ids": [1, -1])", "stop_token_ids[1]"},
        Fault{R"("logit_bias": [])", "logit_bias"}, Fault{R"("logit_bias": {"x": 1})", "logit_bias"},
        Fault{R"("logit_bias": {"100": 1})", "logit_bias"}, Fault{R"("logit_bias": {"-1": 1})", "logit_bias"},
        Fault{R"("logit_bias": {"-0": 1})", "logit_bias"},
        Fault{R"("logit_bias": {"1": 101})", "logit_bias.1"},
        Fault{R"("logit_bias": {"1": 1, "01": 2})", "logit_bias"}, Fault{R"("ignore_eos": 1)", "ignore_eos"},
        Fault{R"("ignore_eos": "yes")", "ignore_eos"},
        Fault{R"("include_stop_str_in_output": 0)", "include_stop_str_in_output"},
        Fault{R"("skip_special_tokens": 0)", "skip_special_tokens"}, Fault{R"("stream": "true")", "stream"},
        Fault{R"("stream_options": {"include_usage": true})", "stream_options"},
        Fault{R"("stream": true, "stream_options": [])", "stream_options"},
        Fault{R"("stream": true, "stream_options": {"include_usage": 1})", "stream_options.include_usage"},
        Fault{R"("stream": true, "stream_options": {"x": 1})", "stream_options.x"},
        Fault{R"("user": 5)", "user"}, Fault{R"("cache_salt": {})", "cache_salt"},
        Fault{R"("priority": 0.5)", "priority"}, Fault{R"("priority": 2147483648)", "priority"},
        Fault{R"("ttft_deadline_ms": 0)", "ttft_deadline_ms"},
        Fault{R"("ttft_deadline_ms": -5)", "ttft_deadline_ms"}, Fault{R"("frobnicate": 1)", "frobnicate"},
        Fault{R"("frobnicate": null)", "frobnicate"}, Fault{R"("min_tokens": -1)", "min_tokens"},
        Fault{R"("min_tokens": 5, "max_tokens": 4)", "min_tokens"},
        Fault{R"("prompt_logprobs": 21)", "prompt_logprobs"},
        Fault{R"("prompt_logprobs": -1)", "prompt_logprobs"},
        Fault{R"("logprob_token_ids": [1])", "logprob_token_ids"},
        Fault{R"("logprob_token_ids": [])", "logprob_token_ids"},
        Fault{R"("logprob_token_ids": 1)", "logprob_token_ids"},
        Fault{R"("prompt_logprobs": 0, "stream": true)", "prompt_logprobs"},
        Fault{R"("bad_words": "a")", "bad_words"}, Fault{R"("bad_words": ["a", ""])", "bad_words[1]"},
        Fault{R"("bad_words": ["  "])", "bad_words[0]"}, Fault{R"("bad_words": [1])", "bad_words[0]"},
        Fault{R"("allowed_token_ids": [])", "allowed_token_ids"},
        Fault{R"("allowed_token_ids": [1, 100])", "allowed_token_ids[1]"},
        Fault{R"("truncate_prompt_tokens": 0)", "truncate_prompt_tokens"},
        Fault{R"("truncate_prompt_tokens": -2)", "truncate_prompt_tokens"},
        Fault{R"("metadata": 1)", "metadata"},
        Fault{R"("response_format": {"type": "xml"})", "response_format.type"},
        Fault{R"("response_format": {"type": "json_object", "x": 1})", "response_format.x"},
        Fault{R"("response_format": {"type": "json_schema"})", "response_format.json_schema"},
        Fault{R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}})",
              "response_format.json_schema.schema"},
        Fault{R"("structured_outputs": {"structural_tag": "{}"})", "structured_outputs.structural_tag"},
        Fault{R"("structured_outputs": {"json": "{"})", "structured_outputs.json"},
        Fault{R"("structured_outputs": {"choice": []})", "structured_outputs.choice"},
        Fault{R"("structured_outputs": {"choice": ["a"]}, "guided_regex": "a")", "guided_regex"},
        Fault{R"("guided_choice": ["a", ""])", "guided_choice"},
        Fault{R"j("guided_regex": "a(?=b)")j", "guided_regex"},
        Fault{R"("grammar": "root ::= a")", "grammar"}, Fault{R"("json_schema": 3)", "json_schema"},
        Fault{R"("guided_choice": ["a"], "use_beam_search": true)", "use_beam_search"},
        Fault{R"("return_token_ids": 1)", "return_token_ids"}));

TEST(SharedFields, NeutralValuesOfWhatIsNotBuiltAreTaken) {
  for (const char* field :
       {R"("metadata": {"a": "b"})", R"("response_format": {"type": "text"})", R"("min_tokens": 0)",
        R"("use_beam_search": false)", R"("length_penalty": 1.0)", R"("prompt_logprobs": null)",
        R"("stream_options": null)", R"("n": null)", R"("stop": null)", R"("stop": [])", R"("n": 2.0)",
        R"("top_k": 0)", R"("stop_token_ids": [])", R"("bad_words": [])",
        R"("seed": 18446744073709551615)"}) {
    EXPECT_EQ(completion_fault(field), "") << field;
    EXPECT_EQ(chat_fault(field), "") << field;
  }
}

TEST(SharedFields, WhatForbidsTokensAndScoresThePrompt) {
  const GenerationOptions options = completion_options(
      R"("min_tokens": 3, "bad_words": ["no", " never"], "allowed_token_ids": [9, 2, 9], "prompt_logprobs": 2,
         "echo": true, "logprobs": 5, "truncate_prompt_tokens": -1)");
  EXPECT_EQ(options.generation.sampling.min_tokens, 3U);
  EXPECT_THAT(options.bad_words, ElementsAre("no", " never"));
  EXPECT_THAT(options.generation.sampling.allowed_tokens, ElementsAre(2, 9));
  EXPECT_EQ(options.prompt_logprobs, 2);
  EXPECT_EQ(options.generation.wants.logprobs, 5);
  EXPECT_EQ(options.truncate_prompt_tokens, -1);
  EXPECT_EQ(completion_options(R"("logprobs": 5)").generation.wants.logprobs, -1);
  EXPECT_EQ(completion_options(R"("prompt_logprobs": 0)").generation.wants.logprobs, 0);
  EXPECT_EQ(chat_fault(R"("max_tokens": 0)"), "max_tokens");
  EXPECT_EQ(chat_fault(R"("min_tokens": 9)"), "") << "as many as the model's length allows";
}

TEST(SharedFields, LogprobsOfTokensThatAreNamed) {
  const std::string ids = R"("logprob_token_ids": [9, 2, 9])";
  EXPECT_THAT(completion_options(R"("logprobs": 0, )" + ids).generation.sampling.logprob_tokens,
              ElementsAre(9, 2));
  EXPECT_EQ(chat_fault(R"("logprobs": true, )" + ids), "");
  EXPECT_EQ(chat_fault(R"("logprobs": false, )" + ids), "logprob_token_ids");
  EXPECT_EQ(completion_fault(R"("logprobs": 0, "max_tokens": 0, )" + ids), "logprob_token_ids");
  EXPECT_EQ(completion_fault(R"("logprobs": 0, "use_beam_search": true, )" + ids), "logprob_token_ids");
  const std::string last = fmt::format("{}", kContext.vocab_size - 1);
  EXPECT_EQ(completion_fault(R"("logprobs": 0, "logprob_token_ids": [0, )" + last + "]"), "");
  EXPECT_EQ(
      completion_fault(fmt::format(R"("logprobs": 0, "logprob_token_ids": [0, {}])", kContext.vocab_size)),
      "logprob_token_ids[1]");
  std::string many = "0";
  for (uint32_t i = 1; i < kMaxLogprobTokens; ++i) many += ", 0";
  EXPECT_EQ(completion_fault(fmt::format(R"("logprobs": 0, "logprob_token_ids": [{}])", many)), "");
  EXPECT_EQ(completion_fault(fmt::format(R"("logprobs": 0, "logprob_token_ids": [{}, 0])", many)),
            "logprob_token_ids");
}

TEST(CompletionSchema, FaultsOfItsOwn) {
  EXPECT_EQ(completion_fault(R"("logprobs": 21)"), "logprobs");
  EXPECT_EQ(completion_fault(R"("logprobs": -1)"), "logprobs");
  EXPECT_EQ(completion_fault(R"("logprobs": true)"), "logprobs");
  EXPECT_EQ(completion_fault(R"("suffix": "x")"), "suffix");
  EXPECT_EQ(completion_fault(R"("suffix": null)"), "");
  EXPECT_EQ(completion_fault(R"("best_of": 2)"), "");
  EXPECT_EQ(completion_fault(R"("best_of": 2, "n": 2)"), "");
  EXPECT_EQ(completion_fault(R"("best_of": 2, "n": 3)"), "best_of");
  EXPECT_EQ(completion_fault(R"("best_of": 2, "stream": true)"), "stream");
  EXPECT_EQ(completion_fault(R"("length_penalty": 2)"), "length_penalty");
  EXPECT_EQ(completion_fault(R"("use_beam_search": true, "length_penalty": 2, "n": 3)"), "");
  EXPECT_EQ(completion_fault(R"("use_beam_search": true, "stream": true)"), "stream");
  EXPECT_EQ(completion_fault(R"("use_beam_search": true, "n": 11)"), "n");
  EXPECT_EQ(completion_fault(R"("use_beam_search": true, "best_of": 11)"), "best_of");
  EXPECT_EQ(completion_fault(R"("use_beam_search": true, "stop": "a")"), "stop");
  for (const auto& [name, value, harmless] :
       {std::tuple("temperature", 0.5, 0), {"top_p", 0.9, 1}, {"top_k", 5, -1}, {"min_p", 0.1, 0}}) {
    const auto with = [&](auto given) {
      return fmt::format(R"("use_beam_search": true, "{}": {})", name, given);
    };
    EXPECT_EQ(completion_fault(with(value)), name);
    EXPECT_EQ(completion_fault(with(harmless)), "");
  }
  EXPECT_EQ(completion_fault(R"("echo": 1)"), "echo");
  EXPECT_EQ(completion_fault(R"("echo": true)"), "");
  EXPECT_EQ(completion_fault(R"("echo": true, "logprobs": 1)"), "");
  EXPECT_EQ(completion_fault(R"("max_tokens": 0)"), "");
  EXPECT_EQ(completion_fault(R"("min_tokens": 17)"), "min_tokens")
      << "16 tokens are the most without max_tokens";
  for (const char* name : {"min_tokens", "prompt_logprobs", "allowed_token_ids", "bad_words"}) {
    const bool list = name[0] == 'a' || name[0] == 'b';
    const std::string value = name[0] == 'b' ? R"(["a"])" : list ? "[1]" : "1";
    EXPECT_EQ(completion_fault(fmt::format(R"("use_beam_search": true, "{}": {})", name, value)), name);
  }
  EXPECT_EQ(completion_fault(R"("messages": [])"), "messages");
  EXPECT_EQ(completion_fault(R"("tools": [])"), "tools");
}

std::string prompt_fault(const std::string& prompt) {
  const auto request = parse_completion(parsed(R"({"prompt": )" + prompt + "}"), kContext);
  return request ? "" : request.error().param;
}

TEST(CompletionSchema, AllFormsOfPrompt) {
  const auto prompts = [](const std::string& prompt) {
    auto request = parse_completion(parsed(R"({"prompt": )" + prompt + "}"), kContext);
    return request ? request->prompts : std::vector<Prompt>();
  };
  EXPECT_THAT(prompts(R"(["a", "b"])"), ElementsAre(Prompt("a"), Prompt("b")));
  EXPECT_THAT(prompts("[1, 2, 99]"), ElementsAre(Prompt(std::vector<TokenId>{1, 2, 99})));
  EXPECT_THAT(prompts("[[1], [2, 3]]"),
              ElementsAre(Prompt(std::vector<TokenId>{1}), Prompt(std::vector<TokenId>{2, 3})));
  EXPECT_EQ(prompt_fault("null"), "prompt");
  EXPECT_EQ(prompt_fault("7"), "prompt");
  EXPECT_EQ(prompt_fault("{}"), "prompt");
  EXPECT_EQ(prompt_fault("[]"), "prompt");
  EXPECT_EQ(prompt_fault("[[]]"), "prompt[0]");
  EXPECT_EQ(prompt_fault("[null]"), "prompt");
  EXPECT_EQ(prompt_fault("[1, \"a\"]"), "prompt[1]");
  EXPECT_EQ(prompt_fault("[\"a\", 1]"), "prompt[1]");
  EXPECT_EQ(prompt_fault("[\"a\", [1]]"), "prompt[1]");
  EXPECT_EQ(prompt_fault("[100]"), "prompt[0]");
  EXPECT_EQ(prompt_fault("[-1]"), "prompt[0]");
  EXPECT_EQ(prompt_fault("[1.5]"), "prompt[0]");
  EXPECT_EQ(prompt_fault("[[1], [2, 4000000000]]"), "prompt[1][1]");
  std::string many = "[\"a\"";
  for (uint32_t i = 0; i < kMaxPrompts; ++i) many += ",\"a\"";
  EXPECT_EQ(prompt_fault(many + "]"), "prompt");
}

TEST(Schema, TheBodyMustBeAnObject) {
  for (const char* body : {"[]", "1", "\"x\"", "null", "true"}) {
    EXPECT_FALSE(parse_completion(parsed(body), kContext)) << body;
    EXPECT_FALSE(parse_chat(parsed(body), kContext)) << body;
    EXPECT_FALSE(parse_tokenize(parsed(body))) << body;
    EXPECT_FALSE(parse_detokenize(parsed(body), kContext)) << body;
  }
}

// ---- Chat ----

std::string messages_fault(const std::string& messages) {
  const auto request = parse_chat(parsed(R"({"messages": )" + messages + "}"), kContext);
  return request ? "" : request.error().param;
}

TEST(ChatSchema, MessagesReachTheTemplate) {
  const auto request = parse_chat(parsed(R"({"messages": [
      {"role": "system", "content": "be kind"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "Kim"},
      {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
         {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "content": "3", "tool_call_id": "1"}],
      "chat_template_kwargs": {"enable_thinking": false}})"),
                                  kContext);
  ASSERT_TRUE(request) << request.error().message;
  const json::object& context = request->prompt.context;
  EXPECT_EQ(context.at("messages"), parsed(R"([
      {"role": "system", "content": "be kind"},
      {"role": "user", "content": "a\nb", "name": "Kim"},
      {"role": "assistant", "content": "", "tool_calls": [
         {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]},
      {"role": "tool", "content": "3", "tool_call_id": "1"}])"));
  EXPECT_TRUE(context.at("tools").is_null());
  EXPECT_TRUE(context.at("documents").is_null());
  EXPECT_EQ(context.at("add_generation_prompt"), true);
  EXPECT_EQ(context.at("enable_thinking"), false);
  EXPECT_FALSE(request->prompt.continue_final_message);
  EXPECT_EQ(request->options.generation.max_tokens, std::nullopt);
}

TEST(ChatSchema, ToolsAndTheirChoice) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f",
      "parameters": {"type": "object"}}}, {"type": "function", "function": {"name": "g-2.x"}}])";
  const auto read = [&](const std::string& choice) {
    auto request = parse_chat(parsed(chat_with(tools + choice)), kContext);
    EXPECT_TRUE(request) << request.error().message;
    return request ? request->tools : ToolWishes{};
  };
  const ToolWishes either = read("");
  EXPECT_EQ(either.tools.size(), 2U);
  EXPECT_EQ(either.tools.at("f"), parsed(R"({"type": "object"})").as_object());
  EXPECT_FALSE(either.needed);
  EXPECT_TRUE(either.parallel);
  EXPECT_FALSE(read(R"(, "tool_choice": "auto")").needed);
  EXPECT_FALSE(read(R"(, "tool_choice": null)").needed);
  EXPECT_TRUE(read(R"(, "tool_choice": "required")").needed);
  EXPECT_FALSE(read(R"(, "parallel_tool_calls": false)").parallel);
  const ToolWishes named = read(R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})");
  EXPECT_TRUE(named.needed);
  EXPECT_EQ(named.only, "f");
  EXPECT_TRUE(read(R"(, "tool_choice": "none")").tools.empty());
  const auto strict = parse_chat(parsed(chat_with(R"("tools": [{"type": "function", "function": {
      "name": "f", "strict": true}}, {"type": "function", "function": {"name": "g", "strict": false}}])")),
                                 kContext);
  ASSERT_TRUE(strict);
  EXPECT_THAT(strict->tools.strict, testing::ElementsAre("f"));

  EXPECT_EQ(chat_fault(tools + R"(, "tool_choice": "maybe")"), "tool_choice");
  EXPECT_EQ(chat_fault(tools + R"(, "tool_choice": {"type": "custom"})"), "tool_choice.type");
  EXPECT_EQ(chat_fault(tools + R"(, "tool_choice": {"type": "function", "function": {"name": "h"}})"),
            "tool_choice.function.name");
  const auto fault_of = [](const std::string& function) {
    return chat_fault(R"("tools": [{"type": "function", "function": )" + function + "}]");
  };
  for (const char* name : {R"("a\"b")", R"("a\nb")", R"("")", R"("é")", "7", "null"}) {
    EXPECT_EQ(fault_of(fmt::format(R"({{"name": {}}})", name)), "tools[0].function.name") << name;
  }
  EXPECT_EQ(fault_of("{}"), "tools[0].function.name");
  EXPECT_EQ(fault_of(R"({"name": "f", "parameters": 3})"), "tools[0].function.parameters");
  EXPECT_EQ(fault_of(R"({"name": "f", "strict": "yes"})"), "tools[0].function.strict");
  EXPECT_EQ(chat_fault(R"("tools": [{"type": "function", "function": {"name": "f"}},
                                    {"type": "function", "function": {"name": "f"}}])"),
            "tools[1].function.name");
  std::string many;
  for (size_t i = 0; i <= kMaxTools; ++i)
    many += fmt::format(R"({}{{"type": "function", "function": {{"name": "f{}"}}}})", i == 0 ? "" : ",", i);
  EXPECT_EQ(chat_fault(R"("tools": [)" + many + "]"), "tools");
}

TEST(ChatSchema, OlderFormsAndNone) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";
  EXPECT_EQ(chat_fault(R"("functions": [{"name": "f"}])"), "functions");
  EXPECT_EQ(chat_fault(R"("functions": {})"), "functions");
  EXPECT_EQ(chat_fault(R"("function_call": {"name": "f"})"), "function_call");
  EXPECT_EQ(chat_fault(R"("functions": [], "function_call": "none")"), "");
  EXPECT_EQ(chat_fault(R"("tools": [], "tool_choice": "auto")"), "");
  const auto quiet = parse_chat(parsed(chat_with(tools + R"(, "tool_choice": "none")")), kContext);
  ASSERT_TRUE(quiet) << quiet.error().message;
  EXPECT_TRUE(quiet->prompt.context.at("tools").is_null()) << "a template would ask for calls";
  // Where nothing is generated they are a part of the prompt as any other.
  const auto counted = parse_tokenize(parsed(chat_with(tools)));
  ASSERT_TRUE(counted);
  EXPECT_EQ(std::get<ChatPrompt>(counted->prompt).context.at("tools"),
            parsed(R"([{"type": "function", "function": {"name": "f"}}])"));
}

TEST(ChatSchema, WhatTheModelThoughtIsTaken) {
  for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
    const auto request = parse_chat(
        parsed(fmt::format(R"({{"messages": [{{"role": "assistant", "content": "a", "{}": "hm"}}]}})", name)),
        kContext);
    ASSERT_TRUE(request) << request.error().message;
    EXPECT_EQ(request->prompt.context.at("messages").at(0).at(name), "hm");
  }
}

TEST(ChatSchema, WrongMessagesAreNamed) {
  EXPECT_EQ(messages_fault("null"), "messages");
  EXPECT_EQ(messages_fault("\"hi\""), "messages");
  EXPECT_EQ(messages_fault("[]"), "messages");
  EXPECT_EQ(messages_fault("[1]"), "messages[0]");
  EXPECT_EQ(messages_fault(R"([{"content": "x"}])"), "messages[0].role");
  EXPECT_EQ(messages_fault(R"([{"role": "king", "content": "x"}])"), "messages[0].role");
  EXPECT_EQ(messages_fault(R"([{"role": "function", "name": "f", "content": "x"}])"), "messages[0].role");
  EXPECT_EQ(messages_fault(R"([{"role": "user"}])"), "messages[0].content");
  EXPECT_EQ(messages_fault(R"([{"role": "user", "content": 5}])"), "messages[0].content");
  EXPECT_EQ(messages_fault(R"([{"role": "user", "content": "x", "colour": 1}])"), "messages[0].colour");
  EXPECT_EQ(messages_fault(R"([{"role": "user", "content": [{"type": "image_url"}]}])"),
            "messages[0].content[0]");
  EXPECT_EQ(messages_fault(R"([{"role": "user", "content": [{"type": "text"}]}])"),
            "messages[0].content[0].text");
  EXPECT_EQ(messages_fault(R"([{"role": "user", "content": ["x"]}])"), "messages[0].content[0]");
  EXPECT_EQ(messages_fault(R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}])"),
            "");
  EXPECT_EQ(messages_fault(R"([{"role": "user", "content": "a", "parsed": {}, "whatever": null}])"), "");
  EXPECT_EQ(messages_fault(R"([{"role": "user", "content": "a", "whatever": 1}])"), "messages[0].whatever");
  EXPECT_EQ(messages_fault(R"([{"role": "assistant", "tool_calls": [1]}])"), "messages[0].tool_calls[0]");
  EXPECT_EQ(messages_fault(R"([{"role": "assistant", "content": "x", "audio": {"id": "y"}}])"),
            "messages[0].audio");
}

TEST(ChatSchema, FaultsOfItsOwn) {
  EXPECT_EQ(chat_fault(R"("logprobs": 1)"), "logprobs");
  EXPECT_EQ(chat_fault(R"("logprobs": true, "top_logprobs": 21)"), "top_logprobs");
  EXPECT_EQ(chat_fault(R"("top_logprobs": 2)"), "top_logprobs");
  EXPECT_EQ(chat_fault(R"("logprobs": true, "top_logprobs": -1)"), "top_logprobs");
  EXPECT_EQ(chat_fault(R"("max_completion_tokens": 0)"), "max_completion_tokens");
  EXPECT_EQ(chat_fault(R"("tool_choice": "required")"), "tool_choice");
  EXPECT_EQ(chat_fault(R"("tool_choice": {"type": "function"})"), "tool_choice");
  EXPECT_EQ(chat_fault(R"("tools": [{"type": "function"}])"), "tools[0]");
  EXPECT_EQ(chat_fault(R"("tools": {})"), "tools");
  EXPECT_EQ(chat_fault(R"("modalities": ["text", "audio"])"), "modalities");
  EXPECT_EQ(chat_fault(R"("audio": {"voice": "x"})"), "audio");
  EXPECT_EQ(chat_fault(R"("store": true)"), "store");
  EXPECT_EQ(chat_fault(R"("service_tier": "flex")"), "service_tier");
  EXPECT_EQ(chat_fault(R"("prediction": {})"), "prediction");
  EXPECT_EQ(chat_fault(R"("chat_template": "x")"), "chat_template");
  EXPECT_EQ(chat_fault(R"("chat_template_kwargs": {"messages": []})"), "chat_template_kwargs");
  EXPECT_EQ(chat_fault(R"("add_generation_prompt": true, "continue_final_message": true)"),
            "continue_final_message");
  EXPECT_EQ(chat_fault(R"("prompt": "x")"), "prompt");
  EXPECT_EQ(chat_fault(R"("reasoning_effort": "much")"), "reasoning_effort");
  EXPECT_EQ(chat_fault(R"("thinking_token_budget": -2)"), "thinking_token_budget");
  EXPECT_EQ(chat_fault(R"("include_reasoning": 1)"), "include_reasoning");
  for (const char* good :
       {R"("store": false)", R"("service_tier": "auto")", R"("modalities": ["text"])",
        R"("tool_choice": "none")", R"("parallel_tool_calls": false)", R"("safety_identifier": "x")",
        R"("prompt_cache_key": "x")", R"("verbosity": "medium")", R"("tools": [])",
        R"("add_generation_prompt": false)"}) {
    EXPECT_EQ(chat_fault(good), "") << good;
  }
}

TEST(ChatSchema, LogprobsAndLengths) {
  const auto read = [](const std::string& field) {
    return parse_chat(parsed(chat_with(field)), kContext)->options.generation;
  };
  EXPECT_EQ(read(R"("logprobs": true)").sampling.num_logprobs, 0);
  EXPECT_EQ(read(R"("logprobs": true, "top_logprobs": 5)").sampling.num_logprobs, 5);
  EXPECT_EQ(read(R"("logprobs": false)").sampling.num_logprobs, -1);
  EXPECT_EQ(read(R"("max_tokens": 5)").max_tokens, 5U);
  EXPECT_EQ(read(R"("max_tokens": 5, "max_completion_tokens": 6)").max_tokens, 6U);
}

TEST(ChatSchema, TheFinalMessageCanGoOn) {
  const auto request = parse_chat(parsed(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "once "}], "continue_final_message": true})"),
                                  kContext);
  ASSERT_TRUE(request);
  EXPECT_TRUE(request->prompt.continue_final_message);
  EXPECT_EQ(request->prompt.context.at("add_generation_prompt"), false);
}

// ---- Tokenize and detokenize ----

TEST(TokenizeSchema, PromptOrMessages) {
  const auto text = parse_tokenize(parsed(R"({"prompt": "x", "add_special_tokens": false})"));
  ASSERT_TRUE(text);
  EXPECT_EQ(std::get<std::string>(text->prompt), "x");
  EXPECT_FALSE(text->add_special_tokens);
  const auto chat = parse_tokenize(
      parsed(R"({"messages": [{"role": "user", "content": "x"}], "return_token_strs": true})"));
  ASSERT_TRUE(chat);
  EXPECT_TRUE(std::holds_alternative<ChatPrompt>(chat->prompt));
  EXPECT_TRUE(chat->return_token_strs);
  const auto fault = [](const char* body) {
    const auto request = parse_tokenize(parsed(body));
    return request ? "" : request.error().param;
  };
  EXPECT_EQ(fault("{}"), "prompt");
  EXPECT_EQ(fault(R"({"prompt": ["x"]})"), "prompt");
  EXPECT_EQ(fault(R"({"prompt": "x", "n": 1})"), "n");
  EXPECT_EQ(fault(R"({"prompt": "x", "messages": [{"role": "user", "content": "x"}]})"), "prompt");
}

TEST(DetokenizeSchema, IdsInTheVocabulary) {
  EXPECT_THAT(parse_detokenize(parsed(R"({"tokens": [0, 99]})"), kContext)->tokens, ElementsAre(0, 99));
  EXPECT_THAT(parse_detokenize(parsed(R"({"tokens": []})"), kContext)->tokens, IsEmpty());
  EXPECT_EQ(parse_detokenize(parsed(R"({"tokens": [100]})"), kContext).error().param, "tokens[0]");
  EXPECT_EQ(parse_detokenize(parsed(R"({})"), kContext).error().param, "tokens");
}

// Whatever stands in a body: an answer, no crash.
TEST(Schema, RandomValuesInEveryField) {
  const char* const fields[] = {
      "prompt",     "messages",       "n",        "stop",  "logit_bias",     "stream_options",
      "tools",      "seed",           "logprobs", "top_k", "top_logprobs",   "temperature",
      "max_tokens", "stop_token_ids", "suffix",   "user",  "response_format"};
  const char* const values[] = {"0",
                                "-1",
                                "1e308",
                                "1e-320",
                                "9223372036854775808",
                                "[]",
                                "{}",
                                "\"\"",
                                "[[]]",
                                "[{}]",
                                "{\"a\":[]}",
                                "true",
                                "\"\\u0000\"",
                                "[null,1,\"x\"]",
                                "null",
                                "[1e9]",
                                "-9223372036854775808"};
  SplitMix64 random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string body = "{";
    for (uint64_t k = random.below(4) + 1; k > 0; --k) {
      body += fmt::format("\"{}\":{}{}", fields[random.below(std::size(fields))],
                          values[random.below(std::size(values))], k > 1 ? "," : "");
    }
    const json::value value = parsed(body + "}");
    static_cast<void>(parse_completion(value, kContext));
    static_cast<void>(parse_chat(value, kContext));
    static_cast<void>(parse_tokenize(value));
  }
}

}  // namespace
}  // namespace quire::serve
