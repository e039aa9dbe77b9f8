// What stands behind `quire chat`: its conversation, its settings, its history.
#include <array>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/chat_history.h"
#include "cli/chat_settings.h"
#include "cli/conversation.h"
#include "cli/did_you_mean.h"
#include "cli/terminal.h"
#include "tests/support/data.h"

namespace quire::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string content(const std::filesystem::path& file) { return read_file(file); }

void write(const std::filesystem::path& file, std::string_view text) { std::ofstream(file) << text; }

std::filesystem::perms mode(const std::filesystem::path& file) {
  return std::filesystem::status(file).permissions();
}

template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class ChatFiles : public testing::Test {
 protected:
  ChatFiles() {
    std::filesystem::remove_all(dir);
    std::filesystem::create_directories(dir);
  }
  ~ChatFiles() override { std::filesystem::remove_all(dir); }
  const std::filesystem::path dir = std::filesystem::path(testing::TempDir()) /
                                    testing::UnitTest::GetInstance()->current_test_info()->name();
};

using Conversations = ChatFiles;

TEST_F(Conversations, KeepTheirSystemPromptInFront) {
  Conversation talk;
  talk.ask("a");
  talk.answer("b");
  talk.set_system("be kind");
  EXPECT_EQ(talk.system(), "be kind");
  EXPECT_EQ(talk.messages().size(), 3U);
  talk.set_system("be short");
  EXPECT_EQ(talk.messages().at(0).at("content"), "be short");
  talk.clear();
  EXPECT_EQ(talk.messages().size(), 1U);
  talk.set_system("");
  EXPECT_TRUE(talk.messages().empty());
}

TEST_F(Conversations, GiveQuestionsAndAnswersBackFromBothEnds) {
  Conversation talk;
  talk.set_system("s");
  EXPECT_FALSE(talk.undo());
  EXPECT_FALSE(talk.take_answer_back());
  for (const char* text : {"1", "2", "3"}) {
    talk.ask(text);
    talk.answer(std::string("to ") + text);
  }
  EXPECT_TRUE(talk.forget_first());
  EXPECT_EQ(talk.text(), "system> s\nuser> 2\nassistant> to 2\nuser> 3\nassistant> to 3\n");
  EXPECT_TRUE(talk.take_answer_back());
  EXPECT_TRUE(talk.awaits_answer());
  EXPECT_TRUE(talk.undo());
  EXPECT_EQ(talk.text(), "system> s\nuser> 2\nassistant> to 2\n");
  EXPECT_FALSE(talk.forget_first()) << "the only question stays";
  EXPECT_EQ(talk.num_questions(), 1U);
}

TEST_F(Conversations, ComeBackFromTheirFileWhichOnlyTheOwnerReads) {
  Conversation talk;
  talk.set_system("s");
  talk.ask("two\nlines \"and\" ü");
  talk.answer("yes");
  talk.save(dir / "talk.json", "a model");
  EXPECT_EQ(mode(dir / "talk.json"),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_TRUE(is_saved_conversation(dir / "talk.json"));
  EXPECT_EQ(Conversation::load(dir / "talk.json").messages(), talk.messages());
  // As a request's body, and nothing is left beside it.
  const json::value body = read_json_file(dir / "talk.json");
  EXPECT_EQ(body.at("model"), "a model");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir), {}), 1);
}

TEST_F(Conversations, OfOthersAreReadInOpenAIsForm) {
  write(dir / "array", R"([{"role":"user","content":[{"type":"text","text":"hi"}]}])");
  EXPECT_EQ(Conversation::load(dir / "array").text(), "user> hi\n");
  write(dir / "escape", R"([{"role":"user","content":"\u001b[2J"}])");
  EXPECT_EQ(Conversation::load(dir / "escape").text(), "user> \uFFFD[2J\n");
  const auto refused = [this](std::string_view text) {
    write(dir / "wrong", text);
    EXPECT_FALSE(is_saved_conversation(dir / "wrong"));
    return error_of([this] { Conversation::load(dir / "wrong"); });
  };
  EXPECT_THAT(refused("{"), HasSubstr("wrong"));
  EXPECT_THAT(refused("{\"a\":1}"), HasSubstr("is not a conversation"));
  EXPECT_THAT(refused("[]"), HasSubstr("it has no messages"));
  EXPECT_THAT(refused(R"([{"role":"king","content":"x"}])"), HasSubstr("messages[0].role"));
  EXPECT_THAT(refused(R"(["x"])"), HasSubstr("messages[0]"));
  EXPECT_THAT(error_of([this] { Conversation::load(dir / "none"); }), HasSubstr("none"));
}

TEST(ChatSettings, AreCheckedAsTheFlagsAre) {
  SamplingOptions given;
  given.temperature = 0.5F;
  SamplingDefaults defaults;
  defaults.top_p = 0.9F;
  ChatSettings settings(given, defaults);
  settings.set("temperature", "0.3");
  settings.set("top_k", "40");
  settings.set("stop", "two words");
  settings.set("max-tokens", "7");
  EXPECT_FLOAT_EQ(*settings.options().temperature, 0.3F);
  EXPECT_EQ(settings.options().top_k, 40);
  EXPECT_THAT(settings.options().stop, ElementsAre("two words"));
  EXPECT_EQ(settings.options().max_tokens, 7U);
  EXPECT_THAT(settings.list(), HasSubstr("top-p                0.9 (the model's)"));
  EXPECT_THAT(settings.list(), HasSubstr("temperature          0.3\n"));
  settings.set("temperature", "default");
  EXPECT_FLOAT_EQ(*settings.options().temperature, 0.5F);
  settings.set("top-k", "default");
  EXPECT_FALSE(settings.options().top_k);
}

TEST(ChatSettings, AreToldOneByOne) {
  SamplingDefaults defaults;
  defaults.top_p = 0.9F;
  ChatSettings settings({}, defaults);
  EXPECT_EQ(settings.describe("top_p"), "top-p: 0.9 (the model's)");
  EXPECT_EQ(settings.describe("--seed"), "seed: 0");
  EXPECT_EQ(settings.describe("stop"), "stop: none");
  settings.set("temperature", "0");
  EXPECT_EQ(settings.describe("temperature"), "temperature: 0");
  EXPECT_THAT(settings.describe("seed"), HasSubstr("seed: 0, which changes nothing"));
  EXPECT_THAT(error_of([&] { settings.describe("temp"); }),
              HasSubstr("there is no setting 'temp': did you mean temperature"));
  EXPECT_THAT(error_of([&] { settings.describe("foo"); }), HasSubstr("'foo'; /set lists all"));
}

TEST(ChatSettings, StopTextsMayStandInQuotes) {
  ChatSettings settings({}, {});
  settings.set("stop", R"("\n\n ")");
  EXPECT_THAT(settings.options().stop, ElementsAre("\n\n "));
  EXPECT_EQ(settings.describe("stop"), R"(stop: "\n\n ")");
  EXPECT_THAT(error_of([&] { settings.set("stop", R"("a)"); }), HasSubstr("is not a text in double quotes"));
  EXPECT_THAT(error_of([&] { settings.set("stop", R"("")"); }), HasSubstr("empty"));
  settings.set("stop", R"(a "b)");
  EXPECT_THAT(settings.options().stop, ElementsAre(R"(a "b)"));
}

TEST(ChatSettings, StayAsTheyAreWhenOneIsWrong) {
  ChatSettings settings({}, {});
  settings.set("temperature", "0.3");
  const auto refused = [&](const char* name, const char* value) {
    return error_of([&] { settings.set(name, value); });
  };
  EXPECT_THAT(refused("temperature", "300"), HasSubstr("temperature: 300"));
  EXPECT_THAT(refused("temperature", "warm"), HasSubstr("'warm'"));
  EXPECT_THAT(refused("temperature", "nan"), HasSubstr("nan"));
  EXPECT_THAT(refused("max-tokens", "0"), HasSubstr("max-tokens: 0"));
  EXPECT_THAT(refused("temprature", "1"), HasSubstr("did you mean temperature"));
  for (const char* seed : {"-1", "18446744073709551616", "1.5", "x", "1 ", "0x1"}) {
    EXPECT_THAT(refused("seed", seed), HasSubstr("is not a whole number from 0 up")) << seed;
  }
  settings.set("seed", "18446744073709551615");
  EXPECT_EQ(settings.options().seed, UINT64_MAX);
  EXPECT_THAT(refused("ignore-eos", "maybe"), HasSubstr("'maybe' is neither true nor false"));
  settings.set("ignore-eos", "on");
  EXPECT_TRUE(settings.options().ignore_eos);
  settings.set("ignore-eos", "false");
  EXPECT_FALSE(settings.options().ignore_eos);
  EXPECT_THAT(refused("help", "1"), HasSubstr("there is no setting 'help'"));
  EXPECT_FLOAT_EQ(*settings.options().temperature, 0.3F);
}

TEST(DidYouMean, NamesWhatBeginsSoOrIsNear) {
  constexpr std::array<std::string_view, 6> kNames = {"/help", "/?", "/set", "/system", "/save", "/load"};
  EXPECT_EQ(did_you_mean("/s", kNames), "did you mean /set, /system or /save?");
  EXPECT_EQ(did_you_mean("/sy", kNames), "did you mean /system?");
  EXPECT_EQ(did_you_mean("/hlep", kNames), "did you mean /help?");
  for (const char* other : {"", "/", "//", "/x", "/nonsense", "/hexagon"}) {
    EXPECT_EQ(did_you_mean(other, kNames), "") << other;
  }
}

using ChatHistories = ChatFiles;

TEST_F(ChatHistories, AreReadByTheNextOne) {
  const auto file = dir / "folder" / "history";
  {
    ChatHistory history(file);
    EXPECT_FALSE(std::filesystem::exists(file));
    history.add("one");
    history.add("one");
    history.add("two\nlines and a \\n");
  }
  EXPECT_EQ(content(file), "one\ntwo\\nlines and a \\\\n\n");
  EXPECT_EQ(mode(file), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(mode(dir / "folder"), std::filesystem::perms::owner_all);
  EXPECT_THAT(ChatHistory(file).entries(), ElementsAre("one", "two\nlines and a \\n"));
}

TEST_F(ChatHistories, AreBounded) {
  const auto file = dir / "history";
  {
    std::ofstream out(file);
    for (size_t i = 0; i < 3 * ChatHistory::kMostEntries; ++i) out << "entry " << i << '\n';
  }
  ChatHistory history(file);
  EXPECT_EQ(history.entries().size(), ChatHistory::kMostEntries);
  EXPECT_EQ(history.entries().back(), "entry 2999");
  const auto before = std::filesystem::file_size(file);
  EXPECT_THAT(content(file), testing::StartsWith("entry 2000\n"));
  history.add(std::string(ChatHistory::kLongestEntry + 1, 'x'));
  EXPECT_EQ(std::filesystem::file_size(file), before);
  EXPECT_EQ(history.entries().size(), ChatHistory::kMostEntries);
}

TEST_F(ChatHistories, OfAnySizeAreReadFromTheirEnd) {
  const auto file = dir / "history";
  write(file, std::string(ChatHistory::kLargestFile, 'x') + "\nlast\n");
  EXPECT_THAT(ChatHistory(file).entries(), ElementsAre("last"));
  EXPECT_EQ(content(file), "last\n");
}

TEST_F(ChatHistories, ThatCannotBeWrittenAreToldOnce) {
  write(dir / "file", "");
  ChatHistory history(dir / "file" / "history");
  EXPECT_THAT(error_of([&] { history.add("x"); }), HasSubstr("cannot be written"));
  history.add("y");
  EXPECT_THAT(history.entries(), ElementsAre("x", "y"));
  EXPECT_THAT(error_of([this] { ChatHistory(dir / "."); }), HasSubstr("not a regular file"));
}

TEST(TerminalText, SteersNoTerminal) {
  EXPECT_EQ(terminal_text("a\tb\nü 🎉"), "a\tb\nü 🎉");
  EXPECT_EQ(terminal_text("\033[2J\r\x7f"), "\uFFFD[2J\uFFFD\uFFFD");
  EXPECT_EQ(terminal_text("\u009b2J"), "\uFFFD2J");
}

}  // namespace
}  // namespace quire::cli
