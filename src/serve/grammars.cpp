#include "serve/grammars.h"

#include <fmt/format.h>

#include "grammar/vocabulary.h"

namespace quire::serve {
namespace {

RequestErrorCode code_of(grammar::CompileFault fault) {
  switch (fault) {
    case grammar::CompileFault::kBusy:
      return RequestErrorCode::kQueueFull;
    case grammar::CompileFault::kInterrupted:
      return RequestErrorCode::kShuttingDown;
    case grammar::CompileFault::kInternal:
      return RequestErrorCode::kInternal;
    default:
      return RequestErrorCode::kInvalid;
  }
}

}  // namespace

Expected<std::shared_ptr<grammar::MaskAllowance>> Grammars::allowance_of(uint64_t client) {
  const std::lock_guard lock(allowances_mutex_);
  // As many as there are answers at work and clients that have lately used some: an idle one is as a new one.
  std::erase_if(allowances_,
                [](const auto& each) { return each.second.use_count() == 1 && each.second->whole(); });
  auto& allowance = allowances_.try_emplace(client).first->second;
  if (allowance == nullptr) allowance = std::make_shared<grammar::MaskAllowance>();
  if (const auto wait = allowance->wait(); wait.count() > 0) {
    return refuse(
        RequestErrorCode::kQueueFull,
        fmt::format("the grammars of this client's last answers took too long: they were too ambiguous "
                    "or recursive; it may use grammars again in {} s",
                    wait.count()));
  }
  return allowance;
}

engine::MakeMaskSource Grammars::find(const std::string& grammar,
                                      const std::shared_ptr<grammar::MaskAllowance>& allowance) {
  grammar::Compiler* const compiler = compiler_;
  return compiler == nullptr ? engine::MakeMaskSource() : compiler->find(grammar, allowance);
}

void Grammars::interrupt() {
  interrupted_ = true;
  if (grammar::Compiler* const compiler = compiler_) compiler->interrupt();
}

Expected<engine::MakeMaskSource> Grammars::compile(const std::string& grammar,
                                                   const std::shared_ptr<grammar::MaskAllowance>& allowance) {
  if (!owner_ && unsupported_.empty()) {
    if (!grammar::can_compile()) unsupported_ = "it was built without XGrammar";
    if (trial_command_.empty()) unsupported_ = "it has no program to compile grammars with";
  }
  if (!owner_ && unsupported_.empty()) {
    auto vocabulary = grammar::vocabulary_of(tokenizer_, vocab_size_, ends_);
    if (!vocabulary) {
      unsupported_ = vocabulary.error();
    } else {
      grammar::CompilerConfig config;
      config.trial_command = trial_command_;
      owner_ = std::make_unique<grammar::Compiler>(std::move(*vocabulary), std::move(config));
      compiler_ = owner_.get();
      if (interrupted_) owner_->interrupt();
    }
  }
  if (!owner_) {
    return refuse(RequestErrorCode::kInvalid,
                  fmt::format("this server cannot make an answer follow a grammar: {}", unsupported_));
  }
  auto made = owner_->compile(grammar, allowance);
  if (!made) return refuse(code_of(made.error().fault), std::move(made.error().message));
  return std::move(*made);
}

}  // namespace quire::serve
