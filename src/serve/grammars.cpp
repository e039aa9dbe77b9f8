#include "serve/grammars.h"

#include <fmt/format.h>

#include "grammar/vocabulary.h"

namespace quire::serve {
namespace {

RequestErrorCode code_of(grammar::CompileFault fault) {
  switch (fault) {
    case grammar::CompileFault::kBusy:
      return RequestErrorCode::kQueueFull;
    case grammar::CompileFault::kInternal:
      return RequestErrorCode::kInternal;
    default:
      return RequestErrorCode::kInvalid;
  }
}

}  // namespace

Expected<engine::MakeMaskSource> Grammars::compile(const std::string& grammar) {
  if (!compiler_ && unsupported_.empty()) {
    if (!grammar::can_compile()) unsupported_ = "it was built without XGrammar";
    if (trial_command_.empty()) unsupported_ = "it has no program to compile grammars with";
  }
  if (!compiler_ && unsupported_.empty()) {
    auto vocabulary = grammar::vocabulary_of(tokenizer_, vocab_size_, ends_);
    if (!vocabulary) {
      unsupported_ = vocabulary.error();
    } else {
      grammar::CompilerConfig config;
      config.trial_command = trial_command_;
      compiler_.emplace(std::move(*vocabulary), std::move(config));
    }
  }
  if (!compiler_) {
    return refuse(RequestErrorCode::kInvalid,
                  fmt::format("this server cannot make an answer follow a grammar: {}", unsupported_));
  }
  auto made = compiler_->compile(grammar);
  if (!made) return refuse(code_of(made.error().fault), std::move(made.error().message));
  return std::move(*made);
}

}  // namespace quire::serve
