#include "cli/generate.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/local_engine.h"
#include "cli/number_range.h"

namespace quire::cli {

void add_sampling_options(CLI::App& command, SamplingOptions& options) {
  const char* group = "Sampling (default: as the model's generation_config.json suggests)";
  const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    return command.add_option(name, value, help)->group(group)->type_name(type);
  };
  add("--temperature", options.temperature, "0: always the likeliest token", "T")
      ->check(number_range(0.0, 100.0));
  add("--top-k", options.top_k, "Only the K likeliest tokens; 0: all", "K")->check(CLI::Range(0, INT32_MAX));
  add("--top-p", options.top_p, "Only the likeliest that make up this probability", "P")
      ->check(number_range(1e-6, 1.0));
  add("--min-p", options.min_p, "Only those at least P times as likely as the likeliest", "P")
      ->check(number_range(0.0, 1.0));
  add("--repetition-penalty", options.repetition_penalty, "Over 1: what has occurred becomes less likely",
      "R")
      ->check(number_range(0.01, 100.0));
  add("--seed", options.seed, "Same seed, same text", "N")->capture_default_str();
  add("--max-tokens", options.max_tokens, "At most so many; default: what the model's length leaves", "N")
      ->check(CLI::Range(1, INT32_MAX));
  add("--stop", options.stop, "End before this text (may be given several times)", "TEXT")
      ->allow_extra_args(false);
  command.add_flag("--ignore-eos", options.ignore_eos, "Go on past the end of the text")->group(group);
}

GenerationRequest make_request(const SamplingOptions& options, const SamplingDefaults& defaults,
                               std::vector<TokenId> prompt) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  const auto pick = [](auto given, auto suggested, auto& into) {
    if (given)
      into = *given;
    else if (suggested)
      into = *suggested;
  };
  SamplingParams& sampling = request.sampling;
  pick(options.temperature, defaults.temperature, sampling.temperature);
  pick(options.top_k, defaults.top_k, sampling.top_k);
  pick(options.top_p, defaults.top_p, sampling.top_p);
  pick(options.min_p, defaults.min_p, sampling.min_p);
  pick(options.repetition_penalty, defaults.repetition_penalty, sampling.repetition_penalty);
  for (const std::string& stop : options.stop) {
    if (stop.empty()) throw Error("--stop: the text is empty");
  }
  sampling.seed = options.seed;
  if (options.max_tokens > 0) request.max_tokens = options.max_tokens;
  request.ignore_eos = options.ignore_eos;
  request.stop = options.stop;
  return request;
}

Generated generate(LocalEngine& local, GenerationRequest request,
                   const std::function<void(std::string_view)>& on_text) {
  using Clock = std::chrono::steady_clock;
  const auto since = [start = Clock::now()] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  // Shared with the engine, which may still have news when this function has thrown.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable arrived;
    std::vector<RequestOutput> outputs;
  };
  const auto inbox = std::make_shared<Inbox>();
  const uint32_t choices = request.n;
  const auto submitted = local.engine->submit(std::move(request), [inbox](RequestOutput output) {
    const std::lock_guard lock(inbox->mutex);
    inbox->outputs.push_back(std::move(output));
    inbox->arrived.notify_one();
  });
  if (!submitted) throw Error(submitted.error().message);

  Generated result;
  result.texts.resize(choices);
  for (bool done = false; !done;) {
    std::vector<RequestOutput> outputs;
    {
      std::unique_lock lock(inbox->mutex);
      inbox->arrived.wait(lock, [&] { return !inbox->outputs.empty(); });
      outputs.swap(inbox->outputs);
    }
    if (result.first_token_seconds == 0) result.first_token_seconds = since();
    for (RequestOutput& output : outputs) {
      for (const ChoiceOutput& choice : output.choices) {
        on_text(choice.text);
        result.texts[choice.index] += choice.text;
      }
      if (output.error) throw Error(output.error->message);
      result.prompt_tokens = output.prompt_tokens;
      result.cached_tokens = output.cached_tokens;
      result.completion_tokens = output.completion_tokens;
      done = output.done;
    }
  }
  result.seconds = since();
  return result;
}

}  // namespace quire::cli
