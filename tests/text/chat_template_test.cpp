#include "text/chat_template.h"

#include <fstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/data.h"

namespace quire::test {
namespace {

const json::object kHello = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}};

void write(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string error_of_loading(const std::filesystem::path& path) {
  try {
    ChatTemplate::load(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ChatTemplate, TheJinjaFileComesFirst) {
  const auto dir = temp_dir();
  write(dir / "tokenizer_config.json", R"({"chat_template": "config", "bos_token": "<s>"})");
  EXPECT_EQ(ChatTemplate::load(dir).render({}).value(), "config");
  write(dir / "chat_template.jinja", "{{ bos_token }}file\n");
  EXPECT_EQ(ChatTemplate::load(dir).render({}).value(), "<s>file");
  EXPECT_EQ(ChatTemplate::load(dir).source(), "{{ bos_token }}file\n");
  EXPECT_EQ(ChatTemplate::load(dir / "chat_template.jinja").render({}).value(), "<s>file");
}

TEST(ChatTemplate, TokensAreStringsOrObjects) {
  const auto dir = temp_dir();
  write(dir / "tokenizer_config.json",
        R"({"chat_template": "{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}|{{ unk_token }}",
            "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null,
            "unk_token": {"no": 1}})");
  const ChatTemplate loaded = ChatTemplate::load(dir);
  EXPECT_EQ(loaded.render({}).value(), "<s>|</s>|False|");
  EXPECT_EQ(loaded.render({{"eos_token", "<end>"}}).value(), "<s>|<end>|False|");
}

TEST(ChatTemplate, TheDefaultOfSeveral) {
  const auto dir = temp_dir();
  write(
      dir / "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  EXPECT_EQ(ChatTemplate::load(dir).render({}).value(), "D");
  write(dir / "tokenizer_config.json", R"({"chat_template": [{"name": "only", "template": "O"}]})");
  EXPECT_EQ(ChatTemplate::load(dir).render({}).value(), "O");
}

TEST(ChatTemplate, BadFilesNameThemselves) {
  const auto dir = temp_dir();
  EXPECT_NE(error_of_loading(dir).find("no chat template"), std::string::npos);
  EXPECT_NE(error_of_loading(dir / "absent.jinja").find("absent.jinja: no such file"), std::string::npos);
  const auto config = dir / "tokenizer_config.json";
  for (const char* bad :
       {"[]", "{", R"({"chat_template": 3})", R"({"chat_template": [1]})", R"({"chat_template": []})",
        R"({"chat_template": [{"name": "a", "template": "b"}, {"name": "c", "template": "d"}]})",
        R"({"chat_template": "{% if %}"})"}) {
    write(config, bad);
    EXPECT_NE(error_of_loading(dir).find("tokenizer_config.json"), std::string::npos) << bad;
  }
  write(dir / "chat_template.jinja", "\n {{ 1 + }}");
  EXPECT_NE(error_of_loading(dir).find("chat_template.jinja: line 2, column 9: unexpected"),
            std::string::npos)
      << error_of_loading(dir);
  write(dir / "chat_template.jinja", "\xff");
  EXPECT_NE(error_of_loading(dir).find("not valid UTF-8"), std::string::npos);
}

TEST(ChatTemplate, NoneIsNoErrorButABrokenOneIs) {
  const auto dir = temp_dir();
  EXPECT_FALSE(ChatTemplate::find(dir));
  const auto config = dir / "tokenizer_config.json";
  write(config, R"({"bos_token": "<s>", "chat_template": null})");
  EXPECT_FALSE(ChatTemplate::find(dir));
  write(config, R"({"chat_template": "one\n{% if %}"})");
  EXPECT_THROW(ChatTemplate::find(dir), Error);
  EXPECT_NE(error_of_loading(dir).find("tokenizer_config.json: key 'chat_template': line 2, column 7: "),
            std::string::npos)
      << error_of_loading(dir);
  write(dir / "chat_template.jinja", "{% endfor %}");
  EXPECT_THROW(ChatTemplate::find(dir), Error);
  write(dir / "chat_template.jinja", "fine");
  EXPECT_EQ(ChatTemplate::find(dir).value().render({}).value(), "fine");
}

TEST(ChatTemplate, ErrorsOfRenderingAreValues) {
  const auto broken = ChatTemplate::parse("a\n{{ messages[0].role + 1 }}", "x").render(kHello);
  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(broken.error().code, RequestErrorCode::kInvalid);
  EXPECT_EQ(broken.error().message,
            "chat template: line 2, column 4: can only concatenate str (not \"int\") to str");
  const auto raised =
      ChatTemplate::parse("{{ raise_exception('Roles must alternate') }}", "x").render(kHello);
  ASSERT_FALSE(raised.has_value());
  EXPECT_EQ(raised.error().message, "Roles must alternate");
}

TEST(ChatTemplate, InvalidTextInTheContextIsRepaired) {
  const json::object context = {{"x", "a\xff\xe6\x97"}, {"o", {{"\xc3", 1}}}};
  EXPECT_EQ(ChatTemplate::parse("{{ x }}{{ x|length }}{{ o }}", "x").render(context).value(),
            "a\uFFFD\uFFFD3{'\uFFFD': 1}");
}

TEST(ChatTemplate, OneTemplateServesManyThreads) {
  QUIRE_NEEDS_DATA("chat-templates");
  const ChatTemplate shared = ChatTemplate::load(data_dir() / "chat-templates" / "llama.cpp-templates" /
                                                 "Qwen-Qwen2.5-7B-Instruct.jinja");
  const std::string expected = shared.render(kHello).value();
  EXPECT_NE(expected.find("Hello<|im_end|>"), std::string::npos);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) wrong[t] += shared.render(kHello).value() == expected ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(ChatTemplate, TheDemoModelHasOne) {
  if (!std::filesystem::exists(demo_model_dir())) GTEST_SKIP() << "SKIPPED, no demo model";
  const auto text = ChatTemplate::load(demo_model_dir())
                        .render({{"messages", kHello.at("messages")}, {"add_generation_prompt", true}});
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_NE(text->find("Hello"), std::string::npos);
}

TEST(ChatTemplate, BoundsGrowWithTheConversation) {
  const std::string echo = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}";
  const ChatTemplate parsed = ChatTemplate::parse(echo, "x");
  json::array messages;
  for (int i = 0; i < 3000; ++i) messages.push_back({{"role", "user"}, {"content", std::string(3000, 'a')}});
  const auto text = parsed.render({{"messages", messages}});
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_EQ(text->size(), 3000U * 3002U);
  const auto bomb = ChatTemplate::parse("{{ 'a' * 2000000 }}", "x").render(kHello);
  ASSERT_FALSE(bomb.has_value());
  EXPECT_NE(bomb.error().message.find("too long"), std::string::npos) << bomb.error().message;
}

}  // namespace
}  // namespace quire::test
