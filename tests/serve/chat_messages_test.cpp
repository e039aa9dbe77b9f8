// What a model's own chat template makes of messages that it may not know.
#include "serve/chat_messages.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat/chat_templates.h"
#include "tests/support/data.h"

namespace quire::serve {
namespace {

using testing::HasSubstr;

struct Rendered {
  std::string text;
  std::string error;
  std::string param;
};

class RealTemplates : public testing::TestWithParam<const char*> {
 protected:
  static std::string file(const std::string& name) {
    return (test::data_dir() / "chat-templates" / "llama.cpp-templates" / (name + ".jinja")).string();
  }

  /// As a server does it with a chat request.
  static Rendered render(const std::string& name, const std::string& messages) {
    const chat::ChatTemplates templates = chat::ChatTemplates::load(file(name));
    const json::value body = parse_json(R"({"messages": )" + messages + "}", "body");
    auto request = parse_chat(body, {.vocab_size = 100});
    if (!request) return {.error = request.error().message, .param = request.error().param};
    json::object& context = request->prompt.context;
    context["bos_token"] = "<s>";
    context["eos_token"] = "</s>";
    if (auto fits = fit_messages(context, **templates.choose(context)); !fits) {
      return {.error = fits.error().message, .param = fits.error().param};
    }
    constexpr std::time_t kNow = 1'700'000'000;
    auto text = templates.render(std::move(context), kNow);
    if (!text) return {.error = text.error().message};
    return {.text = *text};
  }

  /// All that a server does with it.
  static Rendered serve(const std::string& name, const std::string& messages) {
    auto request = parse_chat(parse_json(R"({"messages": )" + messages + "}", "body"), {.vocab_size = 100});
    if (!request) return {.error = request.error().message};
    request->prompt.context["bos_token"] = "<s>";
    request->prompt.context["eos_token"] = "</s>";
    auto text = render_chat(chat::ChatTemplates::load(file(name)), request->prompt);
    if (!text) return {.error = text.error().message};
    return {.text = *text};
  }
};

TEST_P(RealTemplates, ADevelopersMessageIsRenderedAsTheSystems) {
  QUIRE_NEEDS_DATA("chat-templates");
  const auto conversation = [](const std::string& role) {
    return R"([{"role": ")" + role +
           R"(", "content": "Answer in rhymes."}, {"role": "user", "content": "Hi"}])";
  };
  const Rendered system = render(GetParam(), conversation("system"));
  const Rendered developer = render(GetParam(), conversation("developer"));
  EXPECT_EQ(developer.text, system.text);
  EXPECT_EQ(developer.error, system.error);
  if (system.error.empty()) {
    EXPECT_THAT(developer.text, HasSubstr("Answer in rhymes."));
  } else {
    EXPECT_THAT(developer.error, HasSubstr("System role not supported"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RealTemplates,
    testing::Values("CohereForAI-c4ai-command-r7b-12-2024-tool_use", "Qwen-Qwen2.5-7B-Instruct",
                    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "google-gemma-2-2b-it",
                    "llama-cpp-deepseek-r1", "meetkai-functionary-medium-v3.2",
                    "meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct",
                    "microsoft-Phi-3.5-mini-instruct", "mistralai-Mistral-Nemo-Instruct-2407"));

TEST_F(RealTemplates, TheInstructionsOfBothAreHeard) {
  QUIRE_NEEDS_DATA("chat-templates");
  for (const char* name : {"llama-cpp-deepseek-r1", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
                           "Qwen-Qwen2.5-7B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407"}) {
    for (const char* order :
         {R"({"role": "system", "content": "One."}, {"role": "developer", "content": "Two."})",
          R"({"role": "developer", "content": "One."}, {"role": "system", "content": "Two."})"}) {
      const Rendered both =
          render(name, "[" + std::string(order) + R"(, {"role": "user", "content": "Hi"}])");
      EXPECT_EQ(both.error, "") << name;
      EXPECT_THAT(both.text, HasSubstr("One.\n\nTwo.")) << name;
    }
  }
}

TEST_F(RealTemplates, ADevelopersMessageThatIsLeftOutIsRefused) {
  QUIRE_NEEDS_DATA("chat-templates");
  // It shows a system message only beside the last message, if that is the user's.
  const Rendered answered = serve("mistralai-Mistral-Nemo-Instruct-2407",
                                  R"([{"role": "developer", "content": "Answer in rhymes."},
                                       {"role": "user", "content": "Hi"},
                                       {"role": "assistant", "content": "Hello"}])");
  EXPECT_THAT(answered.error, HasSubstr("omits it from this conversation"));
  // Only the last of several.
  const Rendered apart = serve("llama-cpp-deepseek-r1",
                               R"([{"role": "system", "content": "One."}, {"role": "user", "content": "Hi"},
                                    {"role": "assistant", "content": "Hello"},
                                    {"role": "developer", "content": "Two."}, {"role": "user", "content": "Hi"}])");
  EXPECT_THAT(apart.error, HasSubstr("omits it from this conversation"));
}

TEST_F(RealTemplates, AModelWithoutSystemMessagesSaysSoInAUsersWords) {
  QUIRE_NEEDS_DATA("chat-templates");
  const chat::ChatTemplates gemma = chat::ChatTemplates::load(file("google-gemma-2-2b-it"));
  const auto ask = [&](const std::string& messages) {
    auto request = parse_chat(parse_json(R"({"messages": )" + messages + "}", "body"), {.vocab_size = 100});
    return render_chat(gemma, request->prompt);
  };
  for (const std::string role : {"system", "developer"}) {
    const auto refused =
        ask(R"([{"role": ")" + role + R"(", "content": "Rhyme."}, {"role": "user", "content": "Hi"}])");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message,
              "messages[0].role is not supported: this model's chat template accepts no system or developer "
              "message");
    EXPECT_EQ(refused.error().param, "messages[0].role");
  }
  const auto other = ask(R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("must alternate")) << "another fault has the template's words";
  EXPECT_TRUE(ask(R"([{"role": "user", "content": "Hi"}])"));
}

TEST(RenderChat, AnotherFaultThanTheSystemMessageIsTold) {
  const chat::ChatTemplates templates(chat::ChatTemplate::parse(
      "{% if messages|length > 2 %}{{ raise_exception('too many') }}{% endif %}", "test.jinja"));
  auto request = parse_chat(parse_json(R"({"messages": [{"role": "system", "content": "a"},
      {"role": "user", "content": "b"}, {"role": "user", "content": "c"}]})",
                                       "body"),
                            {.vocab_size = 100});
  const auto refused = render_chat(templates, request->prompt);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("too many"));
}

TEST(RenderChat, DocumentsThatTheTemplateDoesNotReadAreRefused) {
  const auto render = [](const char* text, const std::string& documents) {
    const chat::ChatTemplates templates(chat::ChatTemplate::parse(text, "test.jinja"));
    auto request = parse_chat(
        parse_json(R"({"messages": [{"role": "user", "content": "a"}], "documents": )" + documents + "}",
                   "body"),
        {.vocab_size = 100});
    return render_chat(templates, request->prompt);
  };
  constexpr const char* kOne = R"([{"title": "T", "text": "words"}])";
  constexpr const char* kReads = "{% for d in documents or [] %}{{ d.text }}{% endfor %}";
  constexpr const char* kDoesNot = "documents: {{ messages[0].content }}";
  EXPECT_EQ(render(kReads, kOne).value(), "words");
  EXPECT_EQ(render(kDoesNot, "[]").value(), "documents: a");
  EXPECT_EQ(render(kDoesNot, "null").value(), "documents: a");
  const auto refused = render(kDoesNot, kOne);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, RequestErrorCode::kInvalid);
  EXPECT_EQ(refused.error().param, "documents");
  EXPECT_THAT(refused.error().message, HasSubstr("does not read documents"));
}

constexpr const char* kCalls = R"([
  {"role": "user", "content": "How warm is it?"},
  {"role": "assistant", "content": null, "tool_calls": [
    {"id": "abcdefghi", "type": "function", "function": {"name": "measure", "arguments": "{\"where\": \"here\"}"}}]},
  {"role": "tool", "tool_call_id": "abcdefghi", "content": "21 degrees"},
  {"role": "assistant", "content": "It is 21 degrees."},
  {"role": "user", "content": "And there?"}])";

TEST_F(RealTemplates, CallsOfBeforeAreShownOrRefused) {
  QUIRE_NEEDS_DATA("chat-templates");
  for (const char* name : {"Qwen-Qwen2.5-7B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407",
                           "meta-llama-Llama-3.1-8B-Instruct"}) {
    const Rendered shown = render(name, kCalls);
    EXPECT_EQ(shown.error, "") << name;
    EXPECT_THAT(shown.text, HasSubstr("measure")) << name;
    EXPECT_THAT(shown.text, HasSubstr("21 degrees")) << name;
  }
  for (const char* name : {"microsoft-Phi-3.5-mini-instruct", "google-gemma-2-2b-it"}) {
    const Rendered refused = render(name, kCalls);
    EXPECT_EQ(refused.param, "messages[1].tool_calls") << name;
    EXPECT_THAT(refused.error, HasSubstr("does not show tool calls")) << name;
  }
}

TEST(FitMessages, ATemplateThatNamesDevelopersGetsThem) {
  const chat::ChatTemplate knows =
      chat::ChatTemplate::parse("{{ messages[0].role == 'developer' }}", "test.jinja");
  json::object context = {{"messages", {{{"role", "developer"}, {"content", "a"}}}}};
  ASSERT_TRUE(fit_messages(context, knows));
  EXPECT_EQ(context.at("messages").at(0).at("role"), "developer");
}

/// What a template written here makes of a conversation with a call.
std::string with_call(const std::string& source, const std::string& arguments, const std::string& content) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("quire_template_{}.jinja", getpid());
  std::ofstream(path) << source;
  const std::string messages =
      R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": )" + content +
      R"(, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments": )" +
      json::serialize(json::string(arguments)) +
      R"(}}]}, {"role": "tool", "tool_call_id": "c", "content": "3"}])";
  auto request = parse_chat(parse_json(R"({"messages": )" + messages + "}", "body"), {.vocab_size = 100});
  if (!request) return request.error().message;
  auto text = render_chat(chat::ChatTemplates::load(path.string()), request->prompt);
  std::filesystem::remove(path);
  return text ? *text : text.error().message;
}

TEST(Calls, ComeInTheFormThatTheTemplateWants) {
  const std::string plain =
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
      "({{ c.function.arguments | tojson }}){% endfor %};{% endfor %}";
  EXPECT_EQ(with_call(plain, R"({"a": 1})", "null"), R"(u;add({"a": 1});3;)");
  const std::string looks_for_none =
      "{% for m in messages %}{% if m.content is none %}{{ m.tool_calls[0].function.name }}{% else %}{{ "
      "m.content }}"
      "{% endif %};{% endfor %}";
  EXPECT_EQ(with_call(looks_for_none, R"({"a": 1})", "null"), "u;add;3;");
  EXPECT_EQ(with_call(looks_for_none, R"({"a": 1})", "\"\""), "u;add;3;");
  const std::string joins =
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name + "
      "c.function.arguments }}"
      "{% endfor %};{% endfor %}";
  EXPECT_EQ(with_call(joins, R"({"a": 1})", "null"), R"(u;add{"a":1};3;)");
  const std::string both =
      "{% for m in messages %}{% if m.content is none %}{{ m.tool_calls[0].function.name + "
      "m.tool_calls[0].function.arguments }}{% else %}{{ m.content }}{% endif %};{% endfor %}";
  EXPECT_EQ(with_call(both, R"({"a": 1})", "null"), R"(u;add{"a":1};3;)");
  // Of an answer that was cut.
  EXPECT_EQ(with_call(plain, R"({"a": 1)", "null"), R"(u;add("{\"a\": 1");3;)");
}

/// What such a template makes of a conversation with tools and a call.
std::string with_tools(const std::string& source, const std::string& system) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("quire_template_{}.jinja", getpid());
  std::ofstream(path) << source;
  const chat::ChatTemplates templates = chat::ChatTemplates::load(path.string());
  std::filesystem::remove(path);
  auto request = parse_chat(
      parse_json(
          R"({"tools": [{"type": "function", "function": {"name": "add"}}], "messages": [)" + system +
              R"({"role": "user", "content": "u"}, {"role": "assistant", "content": "I add.", "tool_calls": [
                       {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}},
                       {"id": "2", "type": "function", "function": {"name": "add", "arguments": ""}}]},
                       {"role": "tool", "tool_call_id": "1", "content": "3"}]})",
          "body"),
      {.vocab_size = 100});
  if (!request) return request.error().message;
  const chat::ChatTemplate& chosen = **templates.choose(request->prompt.context);
  EXPECT_TRUE(reads_tools(chosen));
  give_tools(request->prompt.context, chosen);
  auto text = render_chat(templates, request->prompt);
  return text ? *text : text.error().message;
}

TEST(Calls, AreTextWhereTheTemplateDoesNotShowThem) {
  const std::string smol =
      "{% if xml_tools %}{% for t in xml_tools %}{{ t.function.name }} {% endfor %}in <tool_call>{% endif %}"
      "{% for m in messages %}|{{ m.role }} {{ m.content }}{% endfor %}";
  EXPECT_EQ(with_tools(smol, ""),
            "add in <tool_call>|user u|assistant I "
            "add.\n<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":1}}\n</tool_call>"
            "\n<tool_call>\n{\"name\":\"add\",\"arguments\":{}}\n</tool_call>|tool 3");
  const std::string phi =
      "{% for m in messages %}|{{ m.role }} {{ m.content }}{% if 'tools' in m %}<|tool|>{{ m['tools'] "
      "}}<|/tool|>{% endif %}"
      "{% endfor %}";
  const std::string rest =
      R"(|user u|assistant I add.
functools[{"name":"add","arguments":{"a":1}}, {"name":"add","arguments":{}}]|tool 3)";
  EXPECT_EQ(with_tools(phi, ""), R"(|system <|tool|>[{"name":"add"}]<|/tool|>)" + rest);
  EXPECT_EQ(with_tools(phi, R"({"role": "system", "content": "s"}, )"),
            R"(|system s<|tool|>[{"name":"add"}]<|/tool|>)" + rest);
  EXPECT_THAT(with_tools("{{ xml_tools }}{% for m in messages %}{{ m.content }}{% endfor %}", ""),
              HasSubstr("does not show tool calls"));
}

}  // namespace
}  // namespace quire::serve
