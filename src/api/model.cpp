#include <exception>
#include <mutex>
#include <new>
#include <utility>

#include "api/open_stream.h"
#include "api/quire/quire.h"
#include "api/requests.h"
#include "base/error.h"
#include "base/log.h"
#include "chat/chat_templates.h"
#include "startup/local_engine.h"
#include "startup/model_files.h"

namespace quire {
namespace api {

/// A running engine and what a request needs besides.
class LoadedModel {
 public:
  LoadedModel(const std::string& path, const ModelOptions& options)
      // First: a wrong template is found before the weights are read.
      : templates(startup::find_chat_templates(startup::checked_model(path), options.chat_template)),
        local(engine_options(path, options), startup::model_name(path)) {}

  chat::ChatTemplates templates;
  startup::LocalEngine local;
};

namespace {

/// Before anything is logged: a program does not expect a library to talk.
void be_quiet() {
  static std::once_flag once;
  std::call_once(once, [] { set_log_level(LogLevel::kWarning); });
}

LogLevel level_of(Verbosity verbosity) {
  switch (verbosity) {
    case Verbosity::kErrors:
      return LogLevel::kError;
    case Verbosity::kWarnings:
      return LogLevel::kWarning;
    case Verbosity::kInfo:
      return LogLevel::kInfo;
    case Verbosity::kSilent:
      break;
  }
  return LogLevel::kOff;
}

/// What `act` returns. Its errors become an Exception, the only class of errors that a program knows.
template <class Act>
auto translated(Fault fault, Act act) {
  try {
    return act();
  } catch (const Exception&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw Exception(fault, error.what());
  }
}

}  // namespace
}  // namespace api

void set_log(Verbosity verbosity) {
  api::be_quiet();
  set_log_level(api::level_of(verbosity));
}

Model::Model(const std::string& path, const ModelOptions& options) {
  api::be_quiet();
  loaded_ = api::translated(Fault::kModel, [&] { return std::make_shared<api::LoadedModel>(path, options); });
}

Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Stream Model::complete(std::string_view prompt, const RequestOptions& options) {
  return api::translated(Fault::kRequest, [&] {
    engine::GenerationRequest request = api::engine_request(options, loaded_->local.defaults);
    request.prompt = loaded_->local.prompt_tokens(std::string(prompt));
    return Stream(std::make_unique<api::OpenStream>(loaded_, *loaded_->local.engine, std::move(request)));
  });
}

Stream Model::chat(const std::vector<Message>& messages, const RequestOptions& options) {
  return api::translated(Fault::kRequest, [&] {
    if (!has_chat_template()) throw Error("the model has no chat template");
    engine::GenerationRequest request = api::engine_request(options, loaded_->local.defaults);
    const auto text = loaded_->templates.render(api::template_context(messages));
    if (!text) throw api::exception_of(text.error());
    request.prompt = loaded_->local.tokenizer->encode(*text, false);
    return Stream(std::make_unique<api::OpenStream>(loaded_, *loaded_->local.engine, std::move(request)));
  });
}

bool Model::has_chat_template() const { return !loaded_->templates.empty(); }
std::uint32_t Model::max_model_len() const { return loaded_->local.config.scheduler.max_model_len; }

Stats Model::stats() const {
  const engine::EngineStats now = loaded_->local.engine->stats();
  return {.running = now.step.running,
          .waiting = now.step.waiting,
          .blocks_total = now.step.blocks_total,
          .blocks_referenced = now.step.blocks_referenced,
          .blocks_cached = now.step.blocks_cached,
          .prompt_tokens = now.prompt_tokens,
          .completion_tokens = now.generation_tokens,
          .cached_tokens = now.step.total_prefix_hit_tokens,
          .preemptions = now.step.total_preemptions};
}

}  // namespace quire
