#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/output_file.h"
#include "base/sampling_params.h"
#include "engine/answer_script.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/shadow.h"
#include "engine/step_log.h"
#include "engine/step_trace.h"
#include "model/config.h"
#include "record/run_record.h"
#include "startup/engine_options.h"
#include "tokenize/tokenizer.h"

namespace quire::startup {

/// The files that an engine with these options writes.
std::vector<OutputFile> output_files(const EngineOptions& options);

/// A model with its tokenizer, device, scheduler and engine, running.
struct LocalEngine {
  /// `served_name`: the name of the model in logs and metrics. `steps`: gets the record of each step, beside
  /// the file that --step-log names; must outlive it, and may be null. Throws Error naming the option, the
  /// file or the key at fault.
  LocalEngine(const EngineOptions& options, const std::string& served_name,
              engine::StepSink* steps = nullptr);

  /// The tokens of a text to continue; only BOS if it is empty. Throws Error if there is no BOS then.
  std::vector<TokenId> prompt_tokens(const std::string& text) const;

  /// In Prometheus' format. Any thread.
  std::string metrics_text() const { return metrics.text() + (shadow ? shadow->metrics_text() : ""); }

  std::unique_ptr<tokenize::Tokenizer> tokenizer;
  SamplingDefaults defaults;
  model::ModelConfig facts;
  /// Why the run's times are not what they seem (--force); all that the run writes must repeat it. Mostly "".
  std::string warning;
  std::unique_ptr<engine::AnswerScript> answers;  // that EngineOptions::sim_answers names, or null
  std::unique_ptr<backend::Backend> backend;
  engine::EngineConfig config;
  std::unique_ptr<backend::Executor> executor;
  SteadyClock clock;
  std::unique_ptr<engine::StepTrace> trace;
  std::unique_ptr<engine::StepLog> step_log;
  std::unique_ptr<engine::StepSink> sinks;  // all that get the records of steps; null: nothing does
  std::unique_ptr<record::RunWriter> record;
  std::unique_ptr<engine::WarmStart> warm;
  engine::EngineMetrics metrics;
  std::unique_ptr<engine::Shadow> shadow;  // null: there is none
  std::unique_ptr<engine::Engine> engine;  // the last member, because it uses all of the above

 private:
  /// The pools and the longest sequence.
  void size_pools(const EngineOptions& options);
  /// The token budget, and what the scheduler should know of costs.
  void set_budget(const EngineOptions& options);
  void reserve_step();
  void log_sizes(const std::string& served_name) const;
  void open_files(const EngineOptions& options, const std::string& served_name);
};

}  // namespace quire::startup
