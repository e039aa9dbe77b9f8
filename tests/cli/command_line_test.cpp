#include "cli/command_line.h"

#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/flags.h"
#include "cli/help_formatter.h"
#include "cli/usage_error.h"

namespace quire::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

CommandLine parse(const std::string& text) { return parse_command_line(words(text)); }

TEST(CommandLine, HasOneOfThree) {
  const CommandLine good = parse("run some/model -p x");
  EXPECT_TRUE(good.run && good.help.empty() && good.error.empty());
  const CommandLine help = parse("run --help");
  EXPECT_TRUE(!help.run && !help.help.empty() && help.error.empty());
  const CommandLine bad = parse("run --bogus");
  EXPECT_TRUE(!bad.run && bad.help.empty() && !bad.error.empty());
  EXPECT_FALSE(parse("").error.empty());
}

TEST(CommandLine, HelpIsACommandToo) {
  EXPECT_EQ(parse("help").help, parse("--help").help);
  EXPECT_EQ(parse("help bench serve").help, parse("bench serve --help").help);
  EXPECT_EQ(parse("help help").help, parse("--help").help);
  EXPECT_EQ(parse("help serve --help").help, parse("serve --help").help);
  EXPECT_EQ(parse("help serve extra").error,
            "help: 'extra' is one argument too many; quire serve --help says all");
  EXPECT_EQ(parse("help serve --port 3").error,
            "help: '--port' is one argument too many; quire serve --help says all");
  EXPECT_THAT(parse("help sevre").error, HasSubstr("did you mean quire serve?"));
  EXPECT_THAT(parse("help bench sreve").error, HasSubstr("did you mean quire bench serve?"));
  EXPECT_THAT(parse("--version").help, HasSubstr("."));
}

TEST(CommandLine, ErrorsNameTheCauseAndWhatHelps) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"serve --bogus", "serve: there is no flag '--bogus'; quire serve --help lists them"},
      {"serve --bogus=7 m", "serve: there is no flag '--bogus'; quire serve --help lists them"},
      {"serve", "serve: MODEL is missing; quire serve --help says more"},
      {"logits m --ids-file f", "logits: --output is missing; quire logits --help says more"},
      {"explain run.log --overlay x.json",
       "explain: there is no flag '--overlay'; quire bench serve and quire simulate have it"},
      {"tokenize m x y", "tokenize: 'x' is one argument too many; quire tokenize --help says what it takes"},
      {"explain run.log --html", "--html: its value (FILE) is missing"},
      {"serve m --port", "--port: its value (PORT) is missing"},
      {"serve m --port abc", "--port: 'abc' is not a number from 0 to 65535"},
      {"serve m --port 70000", "--port: 70000 is not a number from 0 to 65535"},
      {"serve m --port 8.5", "--port: 8.5 is not a whole number from 0 to 65535"},
      {"run m --num-blocks 0", "--num-blocks: 0 is not a number from 1 up"},
      {"run m --top-p 1.5", "--top-p: 1.5 is not a number from 0.000001 to 1"},
      {"serve m --port 1 --port 2", "--port: given 2 times, once is enough"},
      {"simulate --requests x", "--requests: 'x' is not a whole number from 0 up, or is too large"},
      {"bench serve --json=x", "--json: takes no value ('x')"},
      {"bench serve --endpoint emb", "--endpoint: 'emb' is not one of completions, chat"},
      {"bench serve --words --vocab-size 9", "--vocab-size: cannot be combined with --words"},
      {"simulate --trace-speed 2", "--trace-speed: changes nothing without --trace"},
      {"bench", "bench: one of throughput, serve, ops, latency is missing"},
      {"bench sreve", "bench: there is no command 'sreve'; did you mean quire bench serve?"},
      {"bench foo", "bench: there is no command 'foo'; it is one of throughput, serve, ops, latency"},
      {"sevre", "there is no command 'sevre'; did you mean quire serve?"},
      {"qwertz", "there is no command 'qwertz'; quire --help lists them"},
      {"--port 3 serve", "there is no flag '--port'; flags come after the command: quire COMMAND --port"},
      {"serve m --max-modl-len 4", "serve: there is no flag '--max-modl-len'; did you mean --max-model-len?"},
      {"serve m --max_model_len 4",
       "serve: there is no flag '--max_model_len'; did you mean --max-model-len?"},
      {"serve m --max-num", "serve: there is no flag '--max-num'; did you mean --max-num-seqs?"}};
  for (const auto& [line, error] : cases) EXPECT_EQ(parse(line).error, error) << line;
}

TEST(CommandLine, AnErrorIsShortHoweverLongTheValue) {
  const std::string letters(100'000, 'a');
  const std::string quoted = "'" + std::string(60, 'a') + "...'";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"run", "m", "--seed", letters},
       "--seed: " + quoted + " is not a whole number from 0 up, or is too large"},
      {{"serve", "m", "--port", letters}, "--port: " + quoted + " is not a number from 0 to 65535"},
      {{"bench", "serve", "--endpoint", letters},
       "--endpoint: " + quoted + " is not one of completions, chat"},
      {{"bench", "serve", "--json=" + letters}, "--json: takes no value (" + quoted + ")"},
      {{"run", "m", "--top-p", letters}, "--top-p: '"},
      {{"run", "m", "--top-p", std::string(100'000, '9')}, "--top-p: 9999"},
      {{"serve", "m", "--" + letters}, "serve: there is no flag '--aaaa"},
      {{"serve", "m", "-n" + letters}, ""},
      {{"--" + letters}, "there is no flag '--aaaa"},
      {{"tokenize", "m", letters}, "tokenize: " + quoted + " is one argument too many"},
      {{letters}, "there is no command " + quoted}};
  for (const auto& [args, error] : cases) {
    const std::string said = parse_command_line(args).error;
    EXPECT_THAT(said, StartsWith(error));
    EXPECT_FALSE(said.empty());
    EXPECT_LT(said.size(), 400U) << said;
  }
  // No character is cut in two.
  std::string umlauts;
  for (int i = 0; i < 50'000; ++i) umlauts += i == 0 ? "a" : "\u00e4";
  EXPECT_THAT(parse_command_line({"run", "m", "--seed", umlauts}).error, Not(HasSubstr("\uFFFD")));
}

TEST(CommandLine, AValueIsShownWithoutItsControlCharacters) {
  EXPECT_EQ(parse_command_line({"serve", "m", "--port", "\033[2J"}).error,
            "--port: '\\u{1b}[2J' is not a number from 0 to 65535");
  for (const char* flag : {"--seed", "--top-p", "--max-tokens", "--device", "--bogus\033", "--num-blocks"}) {
    const std::string said = parse_command_line({"run", "m", flag, "\033\n"}).error;
    EXPECT_FALSE(said.empty()) << flag;
    EXPECT_EQ(said.find_first_of("\033\n"), std::string::npos) << said;
  }
}

TEST(CommandLine, AValueThatReadsLikeAnErrorIsOne) {
  EXPECT_EQ(parse_command_line({"serve", "m", "--port", "x not in range y to z"}).error,
            "--port: 'x not in range y to z' is not a number from 0 to 65535");
  EXPECT_EQ(parse_command_line({"bench", "serve", "--endpoint", "x not in {a,b}"}).error,
            "--endpoint: 'x not in {a,b}' is not one of completions, chat");
  EXPECT_EQ(parse_command_line({"run", "m", "--seed", "--port: Value 1 not in range a to b"}).error,
            "--seed: '--port: Value 1 not in range a to b' is not a whole number from 0 up, or is too large");
}

TEST(CommandLine, ANumberOfAnySizeIsOutOfRange) {
  for (const char* number : {"1e300", "-1e300", "inf"}) {
    EXPECT_EQ(parse_command_line({"run", "m", "--temperature", number}).run, nullptr) << number;
    EXPECT_THAT(parse_command_line({"serve", "m", "--port", number}).error,
                StartsWith("--port: " + std::string(number) + " is not a number from 0 to 65535"));
  }
}

TEST(CommandLine, NamesOfOtherProgramsGetAHint) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"serve --model x", "quire serve PATH"},
      {"serve -m x -c 4096 -ngl 99", "quire serve PATH"},
      {"serve m -c 4096", "--max-model-len N"},
      {"serve m -ngl 99", "no layers to move"},
      {"run m -p x -ngl 99", "no layers to move"},
      {"run m --temp 0.7", "--temperature T"},
      {"run m -f prompt.txt", "quire run MODEL < FILE"},
      {"serve m --mem-fraction-static 0.9", "--kv-cache-memory SIZE"},
      {"serve m --mem_fraction_static=0.9", "--kv-cache-memory SIZE"},
      {"serve m --tensor-parallel-size 2", "--threads"},
      {"serve m --enable-auto-tool-choice", "--tool-call-parser NAME"},
      {"pull llama", "downloads nothing"},
      {"generate m", "quire run MODEL"},
      {"quantize m", "--quantization int8"}};
  for (const auto& [line, hint] : cases) EXPECT_THAT(parse(line).error, HasSubstr(hint)) << line;
  // What the command does not have is not offered.
  EXPECT_THAT(parse("tokenize m -c 4096").error, Not(HasSubstr("--max-model-len")));
}

TEST(CommandLine, AFaultOfAFlagIsToldByItsStatus) {
  EXPECT_EQ(exit_status_of("--swap-space: nothing is swapped out"), 2);
  EXPECT_EQ(exit_status_of("models/x: no such file"), 1);
}

TEST(EditDistance, CountsSwapsOfNeighboursOnce) {
  EXPECT_EQ(edit_distance("serve", "serve"), 0U);
  EXPECT_EQ(edit_distance("sevre", "serve"), 1U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(HelpText, SaysWhatAFlagTakes) {
  EXPECT_EQ(value_text("N:INT in [1 - 64]", "8"), "N=8 (1 to 64)");
  EXPECT_EQ(value_text("N:INT in [1 - 2147483647]", ""), "N (from 1)");
  EXPECT_EQ(value_text("P:FLOAT in [1e-06 - 1e+06]", "1"), "P=1 (0.000001 to 1000000)");
  EXPECT_EQ(value_text("DEVICE:{cpu,sim}", "cpu"), "{cpu,sim}=cpu");
  EXPECT_EQ(value_text("FILE", ""), "FILE");
}

TEST(Flags, GivesItsArgumentsToACommandThatHasThem) {
  uint32_t rate = 0;
  bool caching = true;
  std::string file;
  const auto describe = [&](const Flags& flags) {
    flags.add_option("-r,--rate,--request-rate", rate, "");
    flags.add_flag("!--no-caching,--caching", caching, "");
  };
  Program all("all", "");
  describe(all.flags());
  all.flags().add_option("--file", file, "");
  Program some("some", "");
  describe(some.flags());
  EXPECT_EQ(all.parse({"-r", "7", "--no-caching", "--file", "x"}).error, "");
  const std::vector<std::string> arguments = all.flags().arguments_for(some.flags());
  EXPECT_THAT(arguments, testing::ElementsAre("--rate=7", "--caching=false"));
  rate = 0;
  caching = true;
  EXPECT_EQ(some.parse(arguments).error, "");
  EXPECT_EQ(rate, 7U);
  EXPECT_FALSE(caching);
}

TEST(HelpText, IsNoWiderThanATerminal) {
  std::istringstream commands(
      ",serve,run,chat,bench,bench latency,bench throughput,bench serve,bench ops,simulate,explain,inspect,"
      "plan,logits,perplexity,tokenize,detokenize,render,convert,make-model");
  for (std::string command; std::getline(commands, command, ',');) {
    std::istringstream help(parse(command + " --help").help);
    for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 110U) << command << ": " << line;
  }
}

}  // namespace
}  // namespace quire::cli
