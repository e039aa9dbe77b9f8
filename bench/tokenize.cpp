// How fast tokenizers encode and decode, on one core:
//   bench_tokenize TEXT TOKENIZER... [--benchmark_...]
// TEXT is a file of plain text; it is encoded as one, and line by line. TOKENIZER: what `quire tokenize`
// takes.
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "base/json.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

constexpr size_t kTextBytes = size_t{4} << 20;

void report(benchmark::State& state, size_t bytes, size_t tokens) {
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * static_cast<int64_t>(state.iterations()));
  state.counters["bytes/token"] = static_cast<double>(bytes) / static_cast<double>(tokens);
}

void encode_whole(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  size_t tokens = 0;
  for ([[maybe_unused]] const auto _ : state) tokens = tokenizer.encode(text, false).size();
  report(state, text.size(), tokens);
}

void encode_lines(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  size_t tokens = 0;
  for ([[maybe_unused]] const auto _ : state) {
    tokens = 0;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
      tokens += tokenizer.encode(std::string_view(text).substr(begin, end - begin), false).size();
      begin = end;
    }
  }
  report(state, text.size(), tokens);
}

void decode_stream(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenId> ids = tokenizer.encode(text, false);
  for ([[maybe_unused]] const auto _ : state) {
    Detokenizer detokenizer(tokenizer, true);
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
    std::vector<std::unique_ptr<quire::Tokenizer>> tokenizers;
    for (int i = 2; i < argc; ++i) {
      const std::string name = argv[i];
      tokenizers.push_back(quire::Tokenizer::load(name));
      const quire::Tokenizer& tokenizer = *tokenizers.back();
      const auto add = [&](const char* what, auto* body) {
        benchmark::RegisterBenchmark((std::string(what) + " " + name).c_str(), [&tokenizer, &text, body](
                                                                                   benchmark::State& state) {
          body(state, tokenizer, text);
        })->Unit(benchmark::kMillisecond);
      };
      add("whole", quire::encode_whole);
      add("lines", quire::encode_lines);
      add("decode", quire::decode_stream);
    }
    benchmark::RunSpecifiedBenchmarks();
  } catch (const quire::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
