#include <fstream>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "chat/chat_templates.h"
#include "tests/support/data.h"

namespace quire::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

const json::object kHello = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}};

void write(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string error_of_loading(const std::filesystem::path& path) {
  try {
    chat::ChatTemplates::load(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ChatTemplate, TheJinjaFileComesFirst) {
  const auto dir = temp_dir();
  write(dir / "tokenizer_config.json", R"({"chat_template": "config", "bos_token": "<s>"})");
  EXPECT_EQ(chat::ChatTemplates::load(dir).render({}).value(), "config");
  write(dir / "chat_template.jinja", "{{ bos_token }}file\n");
  EXPECT_EQ(chat::ChatTemplates::load(dir).render({}).value(), "<s>file");
  EXPECT_EQ(chat::ChatTemplates::load(dir).choose({}).value()->source(), "{{ bos_token }}file\n");
  EXPECT_EQ(chat::ChatTemplates::load(dir / "chat_template.jinja").render({}).value(), "<s>file");
}

TEST(ChatTemplate, TokensAreStringsOrObjects) {
  const auto dir = temp_dir();
  write(dir / "tokenizer_config.json",
        R"({"chat_template": "{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}|{{ unk_token }}",
            "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null,
            "unk_token": {"no": 1}})");
  const chat::ChatTemplates loaded = chat::ChatTemplates::load(dir);
  EXPECT_EQ(loaded.render({}).value(), "<s>|</s>|False|");
  EXPECT_EQ(loaded.render({{"eos_token", "<end>"}}).value(), "<s>|<end>|False|");
}

TEST(ChatTemplate, TheDefaultOfSeveral) {
  const auto dir = temp_dir();
  write(
      dir / "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  EXPECT_EQ(chat::ChatTemplates::load(dir).render({}).value(), "D");
  write(dir / "tokenizer_config.json", R"({"chat_template": [{"name": "only", "template": "O"}]})");
  EXPECT_EQ(chat::ChatTemplates::load(dir).render({}).value(), "O");
}

TEST(ChatTemplate, BadFilesNameThemselves) {
  const auto dir = temp_dir();
  EXPECT_NE(error_of_loading(dir).find("no chat template"), std::string::npos);
  EXPECT_NE(error_of_loading(dir / "absent.jinja").find("absent.jinja: no such file"), std::string::npos);
  const auto config = dir / "tokenizer_config.json";
  for (const char* bad : {"[]", "{", R"({"chat_template": 3})", R"({"chat_template": [1]})",
                          R"({"chat_template": [{"name": "a"}]})"}) {
    write(config, bad);
    EXPECT_NE(error_of_loading(dir).find("tokenizer_config.json"), std::string::npos) << bad;
  }
}

TEST(ChatTemplate, ABrokenOneIsToldToWhoAsksForIt) {
  const auto dir = temp_dir();
  EXPECT_TRUE(chat::ChatTemplates::find(dir).empty());
  const auto config = dir / "tokenizer_config.json";
  write(config, R"({"bos_token": "<s>", "chat_template": null})");
  EXPECT_TRUE(chat::ChatTemplates::find(dir).empty());
  write(config, R"({"chat_template": "one\n{% if %}"})");
  EXPECT_THAT(chat::ChatTemplates::find(dir).faults(),
              ElementsAre(config.string() +
                          ": key 'chat_template': line 2, column 7: Expected an expression, got 'end of "
                          "statement block'"));
  write(config, R"({"chat_template": [{"name": "default", "template": "fine"},
                                     {"name": "tool_use", "template": "{{ 1 + }}"}]})");
  const chat::ChatTemplates half = chat::ChatTemplates::find(dir);
  EXPECT_THAT(half.faults(),
              ElementsAre(HasSubstr(".json: key 'chat_template[1].template': line 1, column 8: unexpected")));
  EXPECT_EQ(half.render({}).value(), "fine");
  EXPECT_EQ(half.render({{"tools", json::array()}}).error().message,
            "This model's chat template 'tool_use' is broken: tokenizer_config.json: key "
            "'chat_template[1].template': line 1, column 8: unexpected 'end of print statement'");
  EXPECT_EQ(half.only("default").render({{"tools", json::array()}}).value(), "fine");
  EXPECT_THAT([&] { half.only("tool_use"); }, ThrowsMessage<Error>(HasSubstr("line 1, column 8")));
  write(dir / "chat_template.jinja", "\n {{ 1 + }}");
  EXPECT_THAT(chat::ChatTemplates::load(dir).faults(),
              ElementsAre(HasSubstr("chat_template.jinja: line 2, column 9: unexpected")));
  write(dir / "chat_template.jinja", "\xff");
  EXPECT_THAT(chat::ChatTemplates::load(dir).faults(), ElementsAre(HasSubstr("not valid UTF-8")));
}

/// As transformers 4.57 reads and chooses them.
TEST(ChatTemplates, FilesBesideTheDefault) {
  const auto dir = temp_dir();
  write(dir / "tokenizer_config.json", R"({"chat_template": "config", "bos_token": "<s>"})");
  std::filesystem::create_directory(dir / "additional_chat_templates");
  write(dir / "additional_chat_templates" / "rag.jinja", "{{ bos_token }}rag");
  write(dir / "additional_chat_templates" / "read.me", "{%");
  // With any file the config's counts no more; the only one there is needs no name.
  EXPECT_EQ(chat::ChatTemplates::load(dir).render({}).value(), "<s>rag");
  write(dir / "additional_chat_templates" / "tool_use.jinja", "tools");
  EXPECT_EQ(chat::ChatTemplates::load(dir).render({}).error().message,
            "This model has several chat templates and none is called 'default': rag, tool_use.");
  EXPECT_EQ(chat::ChatTemplates::load(dir).render({{"tools", json::array()}}).value(), "tools");
  write(dir / "chat_template.jinja",
        "default{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}");
  const chat::ChatTemplates all = chat::ChatTemplates::load(dir);
  EXPECT_THAT(all.names(), ElementsAre("default", "rag", "tool_use"));
  EXPECT_EQ(all.render({{"tools", nullptr}}).value(), "defaultTrueTrueFalse");
  EXPECT_EQ(all.render({{"documents", json::array()}}).value(), "defaultTrueFalseFalse");
  EXPECT_EQ(all.only("rag").render({{"tools", json::array()}}).value(), "<s>rag");
  write(dir / "own.jinja", "{{ bos_token }}own");
  EXPECT_EQ(all.only((dir / "own.jinja").string()).render({}).value(), "<s>own");
  EXPECT_THAT([&] { all.only("nope"); },
              ThrowsMessage<Error>("'nope' is neither a chat template of this model (default, rag, tool_use) "
                                   "nor a file"));
  EXPECT_THAT([] { chat::ChatTemplates().only("nope"); }, ThrowsMessage<Error>(HasSubstr("it has none")));
}

/// As transformers 5 does it, in the order of keys that it gives.
TEST(ChatTemplates, ReasoningHasOneName) {
  const chat::ChatTemplates shown(
      chat::ChatTemplate::parse("{% for m in messages %}{{ m | tojson }}{% endfor %}", "test.jinja"));
  const auto rendered = [&](const char* message) {
    return shown.render({{"messages", {parse_json(message, "message")}}}).value();
  };
  EXPECT_EQ(rendered(R"({"role": "assistant", "reasoning": "hm", "content": "a"})"),
            R"({"thinking": "hm", "role": "assistant", "reasoning": "hm", "content": "a", )"
            R"("reasoning_content": "hm"})");
  EXPECT_EQ(rendered(R"({"role": "assistant", "thinking": "hm", "reasoning": "no"})"),
            R"({"thinking": "hm", "role": "assistant", "reasoning": "no", "reasoning_content": "hm"})");
  EXPECT_EQ(rendered(R"({"reasoning_content": "hm", "role": "assistant", "thinking": null})"),
            R"({"thinking": null, "reasoning_content": "hm", "role": "assistant"})");
  EXPECT_EQ(rendered(R"({"role": "assistant", "reasoning": null})"),
            R"({"role": "assistant", "reasoning": null})");
  const chat::ChatTemplates read(chat::ChatTemplate::parse(
      "{{ messages[0].reasoning_content }}{{ messages[0].content }}", "test.jinja"));
  const json::object open = {{"messages", {{{"role", "assistant"}, {"content", "so"}, {"reasoning", "hm"}}}}};
  EXPECT_EQ(read.render_open(open).value(), "hmso");
}

TEST(ChatTemplate, MentionsWhatItNames) {
  const chat::ChatTemplate parsed = chat::ChatTemplate::parse(
      "tool {# 'comment' #}{% if m.role in ['system', \"developer\"] or m['a'] == 'b' %}"
      "{{ 'a developer_preamble' }}{{ x.get('tool_calls') }}{% endif %}",
      "test.jinja");
  for (const char* word : {"role", "system", "developer", "a", "b", "tool_calls"}) {
    EXPECT_TRUE(parsed.mentions(word)) << word;
  }
  for (const char* word : {"tool", "comment", "developer_preamble", "m", "sys", ""}) {
    EXPECT_FALSE(parsed.mentions(word)) << word;
  }
}

TEST(ChatTemplate, HasTheVariablesThatStandInIt) {
  const chat::ChatTemplate parsed = chat::ChatTemplate::parse(
      "documents {# tools #}{% for m in messages %}{{ m.date + 'title' }}{% endfor %}"
      "{% if extra is defined %}{{ f(x=a[b]) | join(sep) }}{% endif %}",
      "test.jinja");
  for (const char* name : {"messages", "m", "extra", "f", "a", "b", "sep"}) {
    EXPECT_TRUE(parsed.has_variable(name)) << name;
  }
  for (const char* name : {"documents", "tools", "date", "title", "x", "join", "message", ""}) {
    EXPECT_FALSE(parsed.has_variable(name)) << name;
  }
}

TEST(ChatTemplates, OfAProcessor) {
  const auto dir = temp_dir();
  write(dir / "chat_template.json", R"({"chat_template": "of images"})");
  EXPECT_EQ(chat::ChatTemplates::load(dir).render({}).value(), "of images");
  write(dir / "tokenizer_config.json", R"({"chat_template": "of text"})");
  EXPECT_EQ(chat::ChatTemplates::load(dir).render({}).value(), "of text");
}

TEST(ChatTemplates, TokensOfOlderModels) {
  const auto dir = temp_dir();
  write(dir / "chat_template.jinja", "{{ bos_token }}{{ eos_token }}");
  write(dir / "special_tokens_map.json", R"({"bos_token": "<a>", "eos_token": {"content": "<b>"}})");
  EXPECT_EQ(chat::ChatTemplates::load(dir).render({}).value(), "<a><b>");
  write(dir / "tokenizer_config.json", R"({"bos_token": "<c>"})");
  EXPECT_EQ(chat::ChatTemplates::load(dir).render({}).value(), "<c><b>");
  write(dir / "tokenizer_config.json", R"({"bos_token": null, "added_tokens_decoder": {}})");
  EXPECT_EQ(chat::ChatTemplates::load(dir).render({}).value(), "");
}

TEST(ChatTemplate, GoesOnWithTheLastMessage) {
  const auto open = [](std::string_view source, json::value content) {
    const json::object context = {
        {"messages", json::array{{{"content", "b"}}, {{"content", std::move(content)}}}}};
    const auto text = chat::ChatTemplate::parse(source, "x").render_open(context);
    if (!text) {
      EXPECT_EQ(text.error().param, "continue_final_message");
    }
    return text ? *text : "!" + text.error().message;
  };
  const std::string plain = "{% for m in messages %}<{{ m.content }}>{% endfor %}b";
  const std::string trims = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}b";
  EXPECT_EQ(open(plain, "b "), "<b><b ");
  EXPECT_EQ(open(plain, ""), "<b><");
  EXPECT_EQ(open(trims, " a \u00a0"), "<b><a");
  EXPECT_EQ(open("{% for m in messages %}<{{ m.content[0].text }}>{% endfor %}",
                 json::array{{{"text", "c"}}, {{"type", "image"}}}),
            "<><c");
  const std::string hidden =
      "!continue_final_message: the chat template does not reproduce the last message unchanged";
  EXPECT_EQ(open("{{ messages[0].content }}", "b"), hidden);
  EXPECT_EQ(open("{{ messages[1].content|upper }}", "b"), hidden);
  const std::string none = "!continue_final_message: the last message has no text to continue";
  EXPECT_EQ(open(plain, nullptr), none);
  EXPECT_EQ(open(plain, json::array{{{"type", "image"}}}), none);
}

TEST(ChatTemplate, ErrorsOfRenderingAreValues) {
  const auto broken = chat::ChatTemplate::parse("a\n{{ messages[0].role + 1 }}", "x").render(kHello);
  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(broken.error().code, RequestErrorCode::kInvalid);
  EXPECT_EQ(broken.error().message,
            "chat template: line 2, column 4: can only concatenate str (not \"int\") to str");
  const auto raised =
      chat::ChatTemplate::parse("{{ raise_exception('Roles must alternate') }}", "x").render(kHello);
  ASSERT_FALSE(raised.has_value());
  EXPECT_EQ(raised.error().message, "Roles must alternate (raised by the chat template, line 1, column 19)");
}

TEST(ChatTemplate, HugeOnesAndHugeMessagesAreCut) {
  EXPECT_THAT([] { chat::ChatTemplate::parse(std::string(chat::kMaxTemplateBytes + 1, 'a'), "x"); },
              ThrowsMessage<Error>(HasSubstr("524289 bytes")));
  const auto raised = chat::ChatTemplate::parse("{{ raise_exception('é' * 99999) }}", "x").render(kHello);
  ASSERT_FALSE(raised.has_value());
  EXPECT_LT(raised.error().message.size(), 1200U);
  EXPECT_TRUE(is_valid_utf8(raised.error().message));
}

TEST(ChatTemplate, InvalidTextInTheContextIsRepaired) {
  const json::object context = {{"x", "a\xff\xe6\x97"}, {"o", {{"\xc3", 1}}}};
  EXPECT_EQ(chat::ChatTemplate::parse("{{ x }}{{ x|length }}{{ o }}", "x").render(context).value(),
            "a\uFFFD\uFFFD3{'\uFFFD': 1}");
}

TEST(ChatTemplate, OneTemplateServesManyThreads) {
  QUIRE_NEEDS_DATA("chat-templates");
  const chat::ChatTemplates shared = chat::ChatTemplates::load(
      data_dir() / "chat-templates" / "llama.cpp-templates" / "Qwen-Qwen2.5-7B-Instruct.jinja");
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
  const auto text = chat::ChatTemplates::load(demo_model_dir())
                        .render({{"messages", kHello.at("messages")}, {"add_generation_prompt", true}});
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_NE(text->find("Hello"), std::string::npos);
}

TEST(ChatTemplate, BoundsGrowWithTheConversation) {
  const std::string echo = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}";
  const chat::ChatTemplate parsed = chat::ChatTemplate::parse(echo, "x");
  json::array messages;
  for (int i = 0; i < 3000; ++i) messages.push_back({{"role", "user"}, {"content", std::string(3000, 'a')}});
  const auto text = parsed.render({{"messages", messages}});
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_EQ(text->size(), 3000U * 3002U);
  const auto bomb = chat::ChatTemplate::parse("{{ 'a' * 2000000 }}", "x").render(kHello);
  ASSERT_FALSE(bomb.has_value());
  EXPECT_NE(bomb.error().message.find("too long"), std::string::npos) << bomb.error().message;
}

}  // namespace
}  // namespace quire::test
