// Memory that runs out at any point of reading or writing a body ends in std::bad_alloc, never in a crash.
#include <cstdlib>
#include <functional>
#include <new>
#include <string>

#include <gtest/gtest.h>

#include "serve/openai_response.h"
#include "serve/openai_schema.h"
#include "tests/support/letter_tokenizer.h"

namespace {

/// Allocations of this thread until one fails; negative: none does.
thread_local int64_t allocations_left = -1;

void* allocate(std::size_t size) {
  if (allocations_left >= 0 && allocations_left-- == 0) {
    allocations_left = -1;
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Those of the whole test program; without a countdown they do what the standard ones do. The nothrow form is
// among them since the delete below frees what it gave (std::stable_sort's buffer).
void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace quire::serve {
namespace {

/// Runs `work` until it gets through, each time with one allocation more before one fails. How often it
/// failed.
int fail_everywhere(const std::function<void()>& work) {
  for (int failures = 0;; ++failures) {
    try {
      allocations_left = failures;
      work();
      const bool untouched = allocations_left >= 0;
      allocations_left = -1;
      if (untouched) return failures;
    } catch (const std::bad_alloc&) {
      allocations_left = -1;
    }
  }
}

constexpr SchemaContext kVocabulary{.vocab_size = 100};

/// Longer than what a string or a short vector holds without memory.
const std::string kLongText = "a text that is longer than what a string holds in itself";

TEST(OutOfMemory, ReadingACompletion) {
  for (const std::string& prompt :
       {'"' + kLongText + '"', "[\"" + kLongText + "\", \"" + kLongText + "\"]", std::string("[1, 2, 3]"),
        std::string("[[1, 2], [3]]"), std::string("[[1, 2], \"x\"]")}) {
    const std::string text = R"({"prompt": )" + prompt + R"(, "stop": [")" + kLongText +
                             R"(", "b"], "stream": true,
        "logit_bias": {"7": -100, "3": 1.5}, "stop_token_ids": [3, 4], "user": ")" +
                             kLongText + R"("})";
    const json::value body = parse_json(text, "body");
    const int failures = fail_everywhere([&] { static_cast<void>(parse_completion(body, kVocabulary)); });
    EXPECT_GT(failures, 10) << prompt;
  }
}

TEST(OutOfMemory, ReadingAChat) {
  const std::string text = R"({"messages": [
      {"role": "system", "content": ")" +
                           kLongText + R"("},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "reasoning": "hm", "tool_calls": [
         {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "content": "3", "tool_call_id": "1"}],
      "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none",
      "chat_template_kwargs": {"enable_thinking": false}})";
  const json::value body = parse_json(text, "body");
  EXPECT_GT(fail_everywhere([&] { static_cast<void>(parse_chat(body, kVocabulary)); }), 20);
  EXPECT_GT(fail_everywhere([&] { static_cast<void>(parse_tokenize(body)); }), 0);
}

TEST(OutOfMemory, ReadingJson) {
  const std::string text = R"({"a": [")" + kLongText + R"(", 1, {"b": null}], "c": 1.5})";
  EXPECT_GT(fail_everywhere([&] { parse_json(text, "body"); }), 3);
  const std::string wrong = R"({"a": ")" + kLongText + "\xff\"}";
  EXPECT_GT(fail_everywhere([&] {
              try {
                parse_json(wrong, "body");
              } catch (const Error&) {
              }
            }),
            3);
}

TEST(OutOfMemory, WritingAnAnswer) {
  const test::LetterTokenizer tokenizer(256);
  const AnswerStyle style = {.kind = AnswerKind::kChat,
                             .id = "chatcmpl-1",
                             .model = kLongText,
                             .logprobs = true,
                             .include_usage = true};
  engine::RequestOutput news;
  news.choices.push_back({.text = kLongText, .tokens = {{.token = 1, .top = {{2, -1.0F}, {3, -2.0F}}}}});
  news.choices.back().finish = control::FinishReason::kStop;
  news.done = true;
  EXPECT_GT(fail_everywhere([&] {
              std::string out;
              StreamedAnswer answer(style, tokenizer, 1);
              answer.add(0, news, out);
              answer.finish(out);
            }),
            5);
  EXPECT_GT(fail_everywhere([&] {
              WholeAnswer answer(style, tokenizer, 1);
              answer.add(0, news);
              static_cast<void>(answer.body());
            }),
            5);
}

}  // namespace
}  // namespace quire::serve
