// Instead of compiler.cpp and trial.cpp in a build without XGrammar.
#include "grammar/compiler.h"

namespace quire::grammar {

class Compiler::Impl {};

Compiler::Compiler(Vocabulary /*vocabulary*/, CompilerConfig /*config*/) {}
Compiler::~Compiler() = default;

engine::MakeMaskSource Compiler::find(const std::string& /*grammar*/,
                                      std::shared_ptr<MaskAllowance> /*allowance*/) {
  return {};
}

void Compiler::interrupt() {}

tl::expected<engine::MakeMaskSource, CompileError> Compiler::compile(
    const std::string& /*grammar*/, std::shared_ptr<MaskAllowance> /*allowance*/) {
  return tl::unexpected(
      CompileError{CompileFault::kRefused, "this build has no XGrammar (CMake option QUIRE_XGRAMMAR)"});
}

bool can_compile() { return false; }

int compile_trials() { return 1; }

}  // namespace quire::grammar
