#include "cli/sim_options.h"

#include <algorithm>
#include <string>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "backend/executor.h"
#include "cli/terminal.h"

namespace quire::cli {
namespace {

bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

/// " word".
bool is_word(const std::string& bytes) {
  return bytes.size() > 1 && bytes[0] == ' ' && std::all_of(bytes.begin() + 1, bytes.end(), is_letter);
}

bool is_printable(const std::string& bytes) {
  return !bytes.empty() &&
         std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

backend::sim::CostModel CostOptions::model() const {
  backend::sim::CostModel cost;
  cost.step = static_cast<Nanos>(step_us * 1000);
  cost.prefill_tokens_per_ms = prefill_tokens_per_ms;
  cost.decode = static_cast<Nanos>(decode_us * 1000);
  cost.decode_more = static_cast<Nanos>(decode_more_us * 1000);
  cost.swap_block = static_cast<Nanos>(swap_block_us * 1000);
  cost.check();
  return cost;
}

void add_cost_options(CLI::App& command, CostOptions& options) {
  const char* group = "Simulated device (what a step takes is the sum of these)";
  const auto add = [&](const char* name, uint64_t& value, const char* help, int64_t least, const char* type) {
    command.add_option(name, value, help)
        ->group(group)
        ->type_name(type)
        ->capture_default_str()
        ->check(CLI::Range(least, int64_t{1'000'000'000}));
  };
  add("--cost-step-us", options.step_us, "Every step", 0, "US");
  add("--cost-prefill-tokens-per-ms", options.prefill_tokens_per_ms,
      "Prompt tokens computed in a millisecond", 1, "N");
  add("--cost-decode-us", options.decode_us, "One sequence that decodes", 0, "US");
  add("--cost-decode-more-us", options.decode_more_us, "Each further sequence that decodes with it", 0, "US");
  add("--cost-swap-block-us", options.swap_block_us, "A block of K/V moved to the host, or back", 0, "US");
  command
      .add_option(
          "--steps-in-flight", options.steps_in_flight,
          "Steps that are planned before the first of them has ended, as for a device that computes while "
          "the next step is planned")
      ->group(group)
      ->capture_default_str()
      ->check(CLI::Range(1, int{backend::kMostOpenSteps}));
}

void print_times(std::span<const std::pair<const char*, sim::Percentiles>> times) {
  fmt::print("\n{}\n", paint(stdout,
                             fmt::format("{:<22} {:>10} {:>10} {:>10} {:>10} {:>10}", "milliseconds", "mean",
                                         "p50", "p90", "p99", "max"),
                             fmt::emphasis::bold));
  for (const auto& [name, of] : times) {
    fmt::print("{:<22}", name);
    for (const Nanos time : {of.mean, of.p50, of.p90, of.p99, of.max}) {
      fmt::print(" {:>10.1f}", static_cast<double>(time) / 1e6);
    }
    fmt::print("\n");
  }
}

std::vector<TokenId> sayable_tokens(const tokenize::Tokenizer& tokenizer, uint32_t vocab_size) {
  std::vector<TokenId> words;
  std::vector<TokenId> printable;
  std::vector<TokenId> others;
  const size_t size = std::min<size_t>(vocab_size, tokenizer.vocab_size());
  for (size_t i = 0; i < size; ++i) {
    const auto id = static_cast<TokenId>(i);
    if (tokenizer.is_special(id)) continue;
    const std::string bytes = tokenizer.token_bytes(id);
    (is_word(bytes) ? words : is_printable(bytes) ? printable : others).push_back(id);
  }
  // A few words would repeat too often.
  constexpr size_t kEnough = 100;
  if (words.size() >= kEnough) return words;
  return printable.empty() ? others : printable;
}

}  // namespace quire::cli
