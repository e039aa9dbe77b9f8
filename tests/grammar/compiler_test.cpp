#include "grammar/compiler.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/token_masks.h"
#include "grammar/gbnf.h"
#include "grammar/mask_allowance.h"
#include "tests/grammar/follow.h"

namespace quire::grammar {
namespace {

const std::string kGood = "root ::= \"ab\"\n";

TEST(Compiler, WhatCostsTooMuchIsRefusedAndTheNextOneCompiles) {
  QUIRE_NEEDS_XGRAMMAR();
  CompilerConfig config = test_config();
  config.trial_cpu_seconds = 0.1;
  Compiler compiler(byte_vocabulary(), config);
  const std::string huge = "root ::= Regex(\"(?:[a-z]{0,120}b){0,120}\")\n";
  for (int round = 0; round < 2; ++round) {
    const auto made = compiler.compile(huge);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().fault, CompileFault::kRefused);
    EXPECT_NE(made.error().message.find("CPU time"), std::string::npos) << made.error().message;
    EXPECT_TRUE(compiler.compile(kGood));
  }
}

TEST(Compiler, MemoryIsLimited) {
  QUIRE_NEEDS_XGRAMMAR();
  CompilerConfig config = test_config();
  config.trial_bytes = 1 << 20;
  config.trial_cpu_seconds = 20;
  Compiler compiler(byte_vocabulary(), config);
  const auto made = compiler.compile("root ::= Regex(\"(?:[a-z]{0,120}b){0,120}\")\n");
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("MiB of memory"), std::string::npos) << made.error().message;
  EXPECT_TRUE(compiler.compile(kGood));
}

TEST(Compiler, AnErrorOfTheGrammarIsTold) {
  QUIRE_NEEDS_XGRAMMAR();
  const auto made = byte_compiler().compile("root ::= nothing_such\n");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().fault, CompileFault::kRefused);
  EXPECT_NE(made.error().message.find("nothing_such"), std::string::npos) << made.error().message;
}

TEST(Compiler, AProgramThatCannotStartIsAnInternalError) {
  QUIRE_NEEDS_XGRAMMAR();
  CompilerConfig config;
  config.trial_command = {"/nonexistent/program"};
  Compiler compiler(byte_vocabulary(), config);
  const auto made = compiler.compile(kGood);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().fault, CompileFault::kInternal);
}

TEST(Compiler, GrammarsInUseAreBounded) {
  QUIRE_NEEDS_XGRAMMAR();
  CompilerConfig config = test_config();
  config.kept_bytes = 0;
  config.most_bytes = 1;
  Compiler compiler(byte_vocabulary(), config);
  const auto made = compiler.compile(kGood);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().fault, CompileFault::kBusy);
}

TEST(Compiler, TheTrialsGoOnWhenTheThreadThatAskedFirstHasEnded) {
  QUIRE_NEEDS_XGRAMMAR();
  Compiler compiler(byte_vocabulary(), test_config());
  for (int i = 0; i < 20; ++i) {
    std::thread([&] {
      const auto made = compiler.compile(fmt::format("root ::= \"{}\"\n", i));
      EXPECT_TRUE(made) << made.error().message;
    }).join();
  }
}

/// The process that tries out grammars for this one.
pid_t trial_process() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string pid, name, state, parent;
    // A name may hold spaces, that of quire does not.
    if (file >> pid >> name >> state >> parent && parent == std::to_string(getpid()) && name == "(quire)" &&
        state != "Z")
      return static_cast<pid_t>(std::stol(pid));
  }
  return 0;
}

const std::string kLong = "root ::= Regex(\"(?:[a-z]{0,120}b){0,120}\")\n";

TEST(Compiler, AKeptGrammarWaitsForNoOther) {
  QUIRE_NEEDS_XGRAMMAR();
  Compiler compiler(byte_vocabulary(), test_config());
  EXPECT_FALSE(compiler.find(kGood));
  ASSERT_TRUE(compiler.compile(kGood));
  const pid_t trial = trial_process();
  ASSERT_GT(trial, 0);
  kill(trial, SIGSTOP);  // so the next one takes for ever
  std::thread other([&] {
    const auto made = compiler.compile(kLong);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().fault, CompileFault::kInterrupted);
    EXPECT_NE(made.error().message.find("shutting down"), std::string::npos) << made.error().message;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(compiler.find(kGood));
  compiler.interrupt();
  other.join();
  EXPECT_FALSE(compiler.compile("root ::= \"c\"\n"));
}

TEST(Compiler, AProcessThatIsKilledOnceIsReplaced) {
  QUIRE_NEEDS_XGRAMMAR();
  Compiler compiler(byte_vocabulary(), test_config());
  ASSERT_TRUE(compiler.compile(kGood));
  const pid_t trial = trial_process();
  ASSERT_GT(trial, 0);
  kill(trial, SIGSTOP);
  std::thread other([&] {
    const auto made = compiler.compile("root ::= \"c\"\n");
    EXPECT_TRUE(made) << made.error().message;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(trial, SIGKILL);
  other.join();
}

TEST(Compiler, AMaskSourceOutlivesItsCompiler) {
  QUIRE_NEEDS_XGRAMMAR();
  engine::MakeMaskSource make;
  {
    Compiler compiler(byte_vocabulary(), test_config());
    make = *compiler.compile(kGood);
  }
  const auto source = make();
  EXPECT_TRUE(allows(mask_of(*source), 'a'));
  source->accept('a');
  EXPECT_FALSE(allows(mask_of(*source), 'a'));
  EXPECT_THROW(source->accept('x'), std::exception);
}

const std::string kAmbiguous = "root ::= s\ns ::= s s s | s s | [a-z]\n";

/// The tokens of the answer before it is refused.
size_t length_until_refused(engine::MaskSource& source, std::string& why) {
  for (size_t tokens = 0; tokens < 5'000; ++tokens) {
    try {
      if (!allows(mask_of(source), 'a')) return 5'000;
    } catch (const backend::MaskRefused& refused) {
      why = refused.what();
      return tokens;
    }
    source.accept('a');
  }
  return 5'000;
}

// What a mask takes grows with an answer to it, and steps wait for masks.
TEST(Compiler, AnAnswerUnderAnAmbiguousGrammarEndsAtTheSameToken) {
  QUIRE_NEEDS_XGRAMMAR();
  Compiler compiler(byte_vocabulary(), test_config());
  const auto made = compiler.compile(kAmbiguous);
  ASSERT_TRUE(made);
  std::string why;
  const size_t tokens = length_until_refused(*(*made)(), why);
  EXPECT_LT(tokens, 1'000U);
  EXPECT_GT(tokens, 20U);
  EXPECT_NE(why.find("too ambiguous"), std::string::npos) << why;
  EXPECT_EQ(length_until_refused(*(*made)(), why), tokens);
}

TEST(Compiler, TheAnswersOfAClientShareWhatTheirMasksMayTake) {
  QUIRE_NEEDS_XGRAMMAR();
  Compiler compiler(byte_vocabulary(), test_config());
  const auto its = std::make_shared<MaskAllowance>();
  const auto made = compiler.compile(kAmbiguous, its);
  ASSERT_TRUE(made);
  std::string why;
  const size_t alone = length_until_refused(*(*made)(), why);
  EXPECT_EQ(its->wait().count(), 0);
  size_t shorter = alone;
  for (int i = 0; i < 3 && shorter == alone; ++i) shorter = length_until_refused(*(*made)(), why);
  EXPECT_LT(shorter, alone);
  EXPECT_NE(why.find("of this client"), std::string::npos) << why;
  EXPECT_GT(its->wait().count(), 0);
  // Another client's answer is as long as ever, and a common grammar takes nothing.
  EXPECT_EQ(length_until_refused(*compiler.find(kAmbiguous, std::make_shared<MaskAllowance>())(), why),
            alone);
  const auto common = compiler.compile(kGood, its);
  ASSERT_TRUE(common);
  EXPECT_TRUE(allows(mask_of(*(*common)()), 'a'));
}

// A text as long as the longest token, in one piece.
TEST(Compiler, AByteTooManyIsNotWaitedFor) {
  QUIRE_NEEDS_XGRAMMAR();
  Compiler compiler(byte_vocabulary(), test_config());
  const auto made = compiler.compile(kAmbiguous);
  ASSERT_TRUE(made);
  const auto source = (*made)();
  EXPECT_TRUE(source->accept_text(std::string(5'000, 'a')));  // would take hours
  EXPECT_THROW(mask_of(*source), backend::MaskRefused);
}

}  // namespace
}  // namespace quire::grammar
