// How fast tokenizers encode and decode, on one core:
//   bench_tokenize TEXT TOKENIZER... [--benchmark_...]
// TEXT is a file of plain text; TOKENIZER: what `quire tokenize` takes. For each:
//   whole  TEXT as one
//   lines  line by line
//   first  line by line, by a tokenizer that was loaded for it and has seen nothing yet
//   words  each word of TEXT once, spaces between them: nothing is seen twice
//   decode token by token
//   1 MB of ...  one line of the same over and over
#include <array>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "base/json.h"
#include "tokenize/tokenizer.h"

namespace quire {
namespace {

constexpr size_t kTextBytes = size_t{4} << 20;

void report(benchmark::State& state, size_t bytes, size_t tokens) {
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * static_cast<int64_t>(state.iterations()));
  state.counters["bytes/token"] = static_cast<double>(bytes) / static_cast<double>(tokens);
}

void encode_whole(benchmark::State& state, const tokenize::Tokenizer& tokenizer, const std::string& text) {
  size_t tokens = 0;
  for ([[maybe_unused]] const auto _ : state) tokens = tokenizer.encode(text, false).size();
  report(state, text.size(), tokens);
}

size_t tokens_of_lines(const tokenize::Tokenizer& tokenizer, const std::string& text) {
  size_t tokens = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    tokens += tokenizer.encode(std::string_view(text).substr(begin, end - begin), false).size();
    begin = end;
  }
  return tokens;
}

void encode_lines(benchmark::State& state, const tokenize::Tokenizer& tokenizer, const std::string& text) {
  size_t tokens = 0;
  for ([[maybe_unused]] const auto _ : state) tokens = tokens_of_lines(tokenizer, text);
  report(state, text.size(), tokens);
}

void encode_first(benchmark::State& state, const std::string& path, const std::string& text) {
  size_t tokens = 0;
  for ([[maybe_unused]] const auto _ : state) {
    state.PauseTiming();
    auto tokenizer = tokenize::Tokenizer::load(path);
    state.ResumeTiming();
    tokens = tokens_of_lines(*tokenizer, text);
    state.PauseTiming();
    tokenizer.reset();
    state.ResumeTiming();
  }
  report(state, text.size(), tokens);
}

std::string distinct_words(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::string out;
  std::unordered_set<std::string_view> seen;
  for (size_t begin = text.find_first_not_of(kSpace); begin != text.npos;) {
    const size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (seen.insert(word).second) {
      out += word;
      out += ' ';
    }
    begin = text.find_first_not_of(kSpace, end);
  }
  return out;
}

constexpr std::array<std::pair<const char*, const char*>, 11> kRepeated = {{
    {"one letter", "a"},
    {"spaces", " "},
    {"digits", "7"},
    {"one CJK character", "\u4e2d"},
    {"a combining mark", "\u0301"},
    {"ab", "ab"},
    {"newlines", "\n"},
    {"one emoji", "\U0001F600"},
    {"punctuation", "!"},
    {"capitals", "A"},
    {"two combining marks", "\u0301\u0323"},
}};

std::string repeated(std::string_view unit) {
  std::string text;
  while (text.size() + unit.size() <= size_t{1} << 20) text += unit;
  return text;
}

void decode_stream(benchmark::State& state, const tokenize::Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenId> ids = tokenizer.encode(text, false);
  for ([[maybe_unused]] const auto _ : state) {
    tokenize::Detokenizer detokenizer(tokenizer, true);
    for (const TokenId id : ids) benchmark::DoNotOptimize(detokenizer.push(id));
    benchmark::DoNotOptimize(detokenizer.flush());
  }
  report(state, text.size(), ids.size());
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc < 3) {
    fmt::print(stderr, "usage: {} TEXT TOKENIZER... [--benchmark_...]\n", argv[0]);
    return 2;
  }
  try {
    std::string text = quire::read_file(argv[1]);
    text.resize(std::min(text.size(), quire::kTextBytes));
    std::vector<std::unique_ptr<quire::tokenize::Tokenizer>> tokenizers;
    for (int i = 2; i < argc; ++i) {
      const std::string name = argv[i];
      tokenizers.push_back(quire::tokenize::Tokenizer::load(name));
      const quire::tokenize::Tokenizer& tokenizer = *tokenizers.back();
      const auto add = [&](const char* what, auto* body) {
        benchmark::RegisterBenchmark((std::string(what) + " " + name).c_str(), [&tokenizer, &text, body](
                                                                                   benchmark::State& state) {
          body(state, tokenizer, text);
        })->Unit(benchmark::kMillisecond);
      };
      add("whole", quire::encode_whole);
      add("lines", quire::encode_lines);
      add("decode", quire::decode_stream);
      benchmark::RegisterBenchmark(("first " + name).c_str(), [&text, name](benchmark::State& state) {
        quire::encode_first(state, name, text);
      })->Unit(benchmark::kMillisecond);
      const auto add_text = [&](const std::string& what, std::string own) {
        benchmark::RegisterBenchmark((what + " " + name).c_str(), [&tokenizer, own = std::move(own)](
                                                                      benchmark::State& state) {
          quire::encode_whole(state, tokenizer, own);
        })->Unit(benchmark::kMillisecond);
      };
      add_text("words", quire::distinct_words(text));
      for (const auto& [what, unit] : quire::kRepeated) {
        add_text(std::string("1 MB of ") + what, quire::repeated(unit));
      }
    }
    benchmark::RunSpecifiedBenchmarks();
  } catch (const quire::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
