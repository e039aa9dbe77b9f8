// How long grammars take, for a vocabulary of a real size:
//   bench_grammar QUIRE TOKENIZER [VOCAB_SIZE [PER_KIND]]
// QUIRE: the program, which tries grammars out in a process of its own. TOKENIZER: what `quire tokenize`
// takes. The vocabulary is padded to VOCAB_SIZE (default 128256) with ids that have no text. It compiles
// PER_KIND (default 10) seeded schemas of each kind and follows random answers to their end or 300 tokens.
// Two tables, in milliseconds and in microseconds: the median, percentiles and the largest.
//   compile  Compiler::compile of a grammar that is new: the trial, and again here
//   again    of one that is kept
//   mask     MaskSource::fill of one token's mask
//   accept   MaskSource::accept of one token
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include "backend/token_masks.h"
#include "base/json.h"
#include "bench/random_schemas.h"
#include "grammar/compiler.h"
#include "grammar/schema.h"
#include "tokenize/tokenizer.h"

namespace quire {
namespace {

using bench::Random;

using Clock = std::chrono::steady_clock;

double micros_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

struct Times {
  std::vector<double> all;

  void add(double time) { all.push_back(time); }
  /// The median and so on, divided by `unit`.
  std::string row(double unit, std::initializer_list<double> shares) {
    std::string out;
    std::ranges::sort(all);
    for (const double share : shares) {
      const auto at = static_cast<size_t>(share * static_cast<double>(all.size()));
      out += all.empty() ? " - |" : fmt::format(" {:.1f} |", all[std::min(at, all.size() - 1)] / unit);
    }
    return out;
  }
};

struct Measured {
  Times compile;
  Times again;
  Times mask;
  Times accept;
  int refused = 0;
};

/// A random answer: any token that the mask allows, with equal chances.
void follow(engine::MaskSource& source, const grammar::Vocabulary& vocabulary, Random& rng, Measured& out) {
  const auto size = static_cast<uint32_t>(vocabulary.tokens.size());
  std::vector<uint32_t> mask;
  std::vector<TokenId> allowed;
  for (int i = 0; i < 300; ++i) {
    mask.assign(backend::mask_words(size), UINT32_MAX);
    const auto begin = Clock::now();
    source.fill(mask);
    out.mask.add(micros_since(begin));
    if (backend::allows(mask, vocabulary.ends.front())) return;
    allowed.clear();
    for (uint32_t id = 0; id < size; ++id) {
      if (backend::allows(mask, static_cast<TokenId>(id))) allowed.push_back(static_cast<TokenId>(id));
    }
    if (allowed.empty()) return;
    const TokenId token = allowed[rng() % allowed.size()];
    const auto accepts = Clock::now();
    source.accept(token);
    out.accept.add(micros_since(accepts));
  }
}

/// In another thread: the one that compiles keeps a low priority.
auto compile(grammar::Compiler& compiler, const std::string& text, Times& times) {
  const auto timed = [&] {
    const auto begin = Clock::now();
    auto made = compiler.compile(text);
    times.add(micros_since(begin));
    return made;
  };
  return std::async(std::launch::async, timed).get();
}

Measured measure(grammar::Compiler& compiler, const grammar::Vocabulary& vocabulary,
                 std::string (*draw)(Random&), uint32_t count) {
  Measured out;
  for (uint32_t seed = 0; seed < count; ++seed) {
    Random rng(seed);
    const auto text = grammar::schema_grammar(json::parse(draw(rng)));
    if (!text) {
      fmt::print(stderr, "{}: {}\n", text.error().pointer, text.error().message);
      ++out.refused;
      continue;
    }
    const auto made = compile(compiler, *text, out.compile);
    if (!made) {
      fmt::print(stderr, "{}\n", made.error().message);
      ++out.refused;
      continue;
    }
    const auto kept = compile(compiler, *text, out.again);
    for (int i = 0; kept && i < 3; ++i) follow(*(*kept)(), vocabulary, rng, out);
  }
  return out;
}

int run(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "bench_grammar QUIRE TOKENIZER [VOCAB_SIZE [PER_KIND]]\n");
    return 2;
  }
  const auto tokenizer = tokenize::Tokenizer::load(argv[2]);
  const auto size = static_cast<uint32_t>(argc > 3 ? std::atoi(argv[3]) : 128'256);
  const auto per_kind = static_cast<uint32_t>(argc > 4 ? std::atoi(argv[4]) : 10);
  const auto vocabulary =
      grammar::vocabulary_of(*tokenizer, size, std::vector<TokenId>{static_cast<TokenId>(size) - 1});
  if (!vocabulary) {
    fmt::print(stderr, "{}\n", vocabulary.error());
    return 1;
  }
  grammar::CompilerConfig config;
  config.trial_command = {argv[1], "--compile-grammars"};
  grammar::Compiler compiler(*vocabulary, config);
  Times first;
  if (!compile(compiler, "root ::= \"a\"\n", first)) return 1;
  fmt::print("{} ids; the first grammar, with the start of the process: {:.0f} ms\n\n", size,
             first.all.front() / 1000);
  fmt::print(
      "| kind | schemas | refused | compile, ms | p90 | max | again, ms | max "
      "|\n|---|---|---|---|---|---|---|---|\n");
  std::string masks =
      "\n| kind | masks | mask, us | p90 | p99 | max | accept, us | p99 | max "
      "|\n|---|---|---|---|---|---|---|---|---|\n";
  const std::pair<const char*, std::string (*)(Random&)> kinds[] = {
      {"flat", bench::flat},       {"bounded", bench::bounded},   {"nested", bench::nested},
      {"enum", bench::enumerated}, {"pattern", bench::patterned}, {"recursive", bench::recursive}};
  for (const auto& [name, draw] : kinds) {
    Measured found = measure(compiler, *vocabulary, draw, per_kind);
    fmt::print("| {} | {} | {} |{}{}\n", name, per_kind, found.refused,
               found.compile.row(1000, {0.5, 0.9, 1}), found.again.row(1000, {0.5, 1}));
    masks += fmt::format("| {} | {} |{}{}\n", name, found.mask.all.size(),
                         found.mask.row(1, {0.5, 0.9, 0.99, 1}), found.accept.row(1, {0.5, 0.99, 1}));
  }
  fmt::print("{}", masks);
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::run(argc, argv); }
