#include "grammar/compiler.h"

#include <csignal>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "grammar/gbnf.h"
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

}  // namespace
}  // namespace quire::grammar
