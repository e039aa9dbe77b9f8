#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "chat/chat_templates.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/shadow.h"
#include "serve/server.h"
#include "tests/serve/http_client.h"
#include "tests/support/failing_tokenizer.h"
#include "tests/support/fake_executor.h"
#include "tests/support/letter_tokenizer.h"

namespace quire::test {

/// Each by its own name.
inline std::vector<serve::ApiKey> keys_of(const std::vector<std::string>& keys) {
  std::vector<serve::ApiKey> out;
  for (const std::string& key : keys) out.push_back(serve::make_api_key(key, key));
  return out;
}

struct ServiceOptions {
  serve::ServerConfig server;  // without allowed_hosts: "x", as HttpClient calls it
  bool default_hosts = false;  // leaves allowed_hosts empty
  uint32_t max_model_len = 512;
  uint32_t num_blocks = 512;
  uint32_t max_num_seqs = 32;
  uint32_t max_waiting = 1024;
  uint32_t max_waiting_per_tenant = UINT32_MAX;
  control::SchedulingKind scheduling = control::SchedulingKind::kFcfs;
  control::VictimKind victim = control::VictimKind::kLastAdmitted;
  Nanos step_delay = 0;
  std::map<std::string, chat::TemplateSource> templates = {
      {"default",
       {.text = "{% for m in messages %}{{ m.role }} {{ m.content }}.{% endfor %}"
                "{% if add_generation_prompt %}go{% endif %}",
        .file = "test.jinja"}}};
  Nanos foreseen_step = 0;  // > 0: the engine has a shadow that takes every step to last so long
  bool promises = false;    // of the shadow
  NextToken next;           // empty: hashed_continuation
  bool failing_tokenizer = false;
  std::shared_ptr<const tokenize::Tokenizer> tokenizer;  // empty: LetterTokenizer
};

/// A server on a free port over an engine whose model writes letters: the answer depends on the prompt, the
/// seed and the choice.
class Service {
 public:
  static constexpr uint32_t kVocab = 256;

  explicit Service(ServiceOptions options = {}) {
    if (options.tokenizer != nullptr) {
      tokenizer_ = options.tokenizer;
    } else if (options.failing_tokenizer) {
      tokenizer_ = std::make_unique<FailingTokenizer>(kVocab);
    } else {
      tokenizer_ = std::make_unique<LetterTokenizer>(kVocab);
    }
    FakeExecutorConfig fake;
    fake.num_blocks = options.num_blocks;
    fake.max_slots = options.max_num_seqs;
    fake.vocab_size = kVocab;
    fake.delay = options.step_delay;
    fake.next = options.next;
    executor_ = std::make_unique<FakeExecutor>(std::move(fake));
    engine::EngineConfig config;
    config.scheduler.num_blocks = options.num_blocks;
    config.scheduler.max_num_seqs = options.max_num_seqs;
    config.scheduler.max_num_batched_tokens = 2048;
    config.scheduler.max_model_len = options.max_model_len;
    config.scheduler.max_waiting = options.max_waiting;
    config.scheduler.scheduling = options.scheduling;
    config.scheduler.victim = options.victim;
    config.max_waiting_per_tenant = options.max_waiting_per_tenant;
    config.vocab_size = kVocab;
    config.check_invariants = true;
    if (options.foreseen_step > 0) {
      const auto step = static_cast<double>(options.foreseen_step);
      shadow_ = std::make_unique<engine::Shadow>(
          [step](const backend::StepWork&) {
            return engine::StepCost{step, 0};
          },
          "letters", options.promises);
    }
    engine_ = std::make_unique<engine::Engine>(config, *tokenizer_, *executor_, clock_, nullptr, &metrics_,
                                               nullptr, nullptr, nullptr, shadow_.get());
    templates_ = chat::ChatTemplates(options.templates, {});
    serve::ServedModel model{.tokenizer = *tokenizer_, .chat_templates = templates_, .bos = 1};
    options.server.port = 0;
    if (options.server.served_names.empty()) options.server.served_names = {"letters", "other/name"};
    options.server.version = "1.2.3";
    if (options.server.allowed_hosts.empty() && !options.default_hosts) options.server.allowed_hosts = {"x"};
    server_ =
        std::make_unique<serve::Server>(options.server, *engine_, model, [this] { return metrics_.text(); });
    server_->start();
  }

  uint16_t port() const { return server_->port(); }
  serve::Server& server() { return *server_; }
  engine::Engine& engine() { return *engine_; }
  FakeExecutor& executor() { return *executor_; }

  Answer get(std::string_view path, std::string_view headers = {}) {
    return HttpClient(port()).get(path, headers);
  }
  Answer post(std::string_view path, std::string_view body, std::string_view headers = {}) {
    return HttpClient(port()).post(path, body, headers);
  }
  Answer complete(std::string_view body) { return post("/v1/completions", body); }

  /// Waits until `condition` holds of the engine's state; false after 20 s.
  bool wait_for(const std::function<bool(const control::StepStats&)>& condition) {
    for (int i = 0; i < 20000; ++i) {
      if (condition(engine_->stats().step)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  bool wait_until_running(uint32_t count = 1) {
    return wait_for([count](const control::StepStats& now) { return now.running >= count; });
  }
  /// Nothing runs, nothing waits, all blocks are back.
  bool wait_until_quiet() {
    return wait_for([](const control::StepStats& now) {
      return now.running == 0 && now.waiting == 0 && now.blocks_referenced == 0;
    });
  }

 private:
  std::shared_ptr<const tokenize::Tokenizer> tokenizer_;
  chat::ChatTemplates templates_;
  SteadyClock clock_;
  engine::EngineMetrics metrics_{"letters"};
  std::unique_ptr<FakeExecutor> executor_;
  std::unique_ptr<engine::Shadow> shadow_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<serve::Server> server_;
};

}  // namespace quire::test
