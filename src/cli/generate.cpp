#include "cli/generate.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/flags.h"

namespace quire::cli {
namespace {

constexpr double kSecond = 1e9;  // in nanoseconds
constexpr std::chrono::milliseconds kLookForStop(50);

}  // namespace

void add_sampling_options(const Flags& command, SamplingOptions& options) {
  const char* group = "Sampling (defaults: from the model's generation_config.json)";
  const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    return command.add_option(name, value, help).group(group).value_name(type);
  };
  add("--temperature", options.temperature, "0: always the most likely token", "T").number_range(0.0, 100.0);
  add("--top-k", options.top_k, "Sample from the K most likely tokens; 0: from all", "K").range(0, INT32_MAX);
  add("--top-p", options.top_p, "Sample from the most likely tokens that together have this probability", "P")
      .number_range(1e-6, 1.0);
  add("--min-p", options.min_p, "Sample from tokens at least P times as likely as the most likely one", "P")
      .number_range(0.0, 1.0);
  add("--repetition-penalty", options.repetition_penalty,
      "Above 1: tokens that have occurred become less likely", "R")
      .number_range(0.01, 100.0);
  add("--seed", options.seed, "Random seed; the same seed gives the same text", "N")
      .show_default()
      .whole_number();
  add("--max-tokens", options.max_tokens, "Most tokens to generate; default: what the model's length leaves",
      "N")
      .range(1, INT32_MAX);
  add("--stop", options.stop, "Stop before this text (may be given several times)", "TEXT").one_value();
  command.add_flag("--ignore-eos", options.ignore_eos, "Do not stop at the end-of-sequence token")
      .group(group);
}

engine::GenerationRequest make_request(const SamplingOptions& options, const SamplingDefaults& defaults,
                                       std::vector<TokenId> prompt) {
  engine::GenerationRequest request;
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
  sampling.seed = options.seed;
  if (options.max_tokens > 0) request.max_tokens = options.max_tokens;
  request.ignore_eos = options.ignore_eos;
  request.stop = options.stop;
  return request;
}

double Generated::prefill_speed() const {
  if (at_the_end || first_token <= 0) return 0;
  return (prompt_tokens - cached_tokens) * kSecond / static_cast<double>(first_token);
}

double Generated::decode_speed() const {
  if (last_token <= first_token) return 0;
  return (completion_tokens - first_tokens) * kSecond / static_cast<double>(last_token - first_token);
}

std::string describe(const Generated& done) {
  const auto milliseconds = [](Nanos time) { return static_cast<double>(time) / 1e6; };
  std::string text = fmt::format("{} prompt tokens ({} cached)", done.prompt_tokens, done.cached_tokens);
  if (done.prefill_speed() > 0) text += fmt::format(" at {:.1f} tok/s", done.prefill_speed());
  text += fmt::format(", {} generated", done.completion_tokens);
  if (done.completion_tokens == 0) return text;
  if (done.at_the_end) {
    const double speed = done.completion_tokens * kSecond / static_cast<double>(done.last_token);
    return text + fmt::format(" in {:.0f} ms, {:.1f} tok/s", milliseconds(done.last_token), speed);
  }
  text += fmt::format(", first after {:.0f} ms", milliseconds(done.first_token));
  if (done.decode_speed() > 0) text += fmt::format(", then {:.1f} tok/s", done.decode_speed());
  return text;
}

Generated generate(engine::Engine& engine, const Clock& clock, engine::GenerationRequest request,
                   const std::function<void(std::string_view)>& on_text, const std::atomic<bool>* stop) {
  struct News {
    engine::RequestOutput output;
    Nanos at = 0;  // not when this thread read it, which may be many tokens later
  };
  // Shared with the engine, which may still deliver output after this function has thrown.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable arrived;
    std::vector<News> news;
  };
  const auto inbox = std::make_shared<Inbox>();
  Generated result;
  result.texts.resize(request.n);
  result.at_the_end = request.beam_search || request.best_of > request.n;
  const Nanos start = clock.now();
  const auto id = engine.submit(std::move(request), [inbox, &clock](engine::RequestOutput output) {
    const Nanos now = clock.now();
    const std::lock_guard lock(inbox->mutex);
    inbox->news.push_back({std::move(output), now});
    inbox->arrived.notify_one();
  });
  if (!id) throw Error(id.error().message);

  bool stopped = false;
  for (bool done = false; !done;) {
    std::vector<News> all_news;
    {
      std::unique_lock lock(inbox->mutex);
      // A signal handler, which sets `stop`, may not notify.
      while (!inbox->arrived.wait_for(lock, kLookForStop, [&] { return !inbox->news.empty(); })) {
        if (stop != nullptr && *stop) break;
      }
      all_news.swap(inbox->news);
    }
    if (stop != nullptr && *stop && !std::exchange(stopped, true)) engine.abort(*id);
    for (News& news : all_news) {
      engine::RequestOutput& output = news.output;
      for (const engine::ChoiceOutput& choice : output.choices) {
        // Output between the request to stop and the end is not shown.
        if (!stopped && !choice.text.empty()) on_text(choice.text);
        if (!stopped) result.texts[choice.index] += choice.text;
        if (choice.index == 0 && choice.finish) result.finish = choice.finish;
      }
      if (output.error) throw Error(output.error->message);
      result.prompt_tokens = output.prompt_tokens;
      result.cached_tokens = output.cached_tokens;
      if (output.completion_tokens > result.completion_tokens) {
        result.last_token = news.at - start;
        if (result.completion_tokens == 0) {
          result.first_token = result.last_token;
          result.first_tokens = output.completion_tokens;
        }
        result.completion_tokens = output.completion_tokens;
      }
      done = output.done;
    }
  }
  return result;
}

}  // namespace quire::cli
