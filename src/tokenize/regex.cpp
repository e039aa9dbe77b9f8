#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenize/regex.h"

#include <algorithm>
#include <array>
#include <new>
#include <pcre2.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"

namespace quire::tokenize {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr uint32_t kMatchLimit = 20'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kJitStackMaxBytes = 32 << 20;

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using CompiledPtr = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using CompileContextPtr = std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;
using MatchContextPtr = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using MatchDataPtr = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using JitStackPtr = std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack_free>>;

template <class Pointer>
Pointer checked(typename Pointer::pointer raw) {
  if (raw == nullptr) throw std::bad_alloc();
  return Pointer(raw);
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Regex::Code {
  CompiledPtr compiled;
  MatchContextPtr limits;
  std::string source;
};

tl::expected<Regex, std::string> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return tl::unexpected(
        fmt::format("a pattern of {} bytes, more than {}", pattern.size(), kMaxPatternBytes));
  }
  const auto rewritten = oniguruma_to_pcre2(pattern);
  if (!rewritten) return tl::unexpected(rewritten.error());
  const auto context = checked<CompileContextPtr>(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int failed = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten->data()), rewritten->size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                     &failed, &offset, context.get()));
  if (!code->compiled) {
    return tl::unexpected(
        fmt::format("bad pattern: {} (at byte {} of '{}')", message_of(failed), offset, *rewritten));
  }
  // Without the JIT (for example without executable memory) PCRE2 interprets, which is slower with the same
  // matches.
  pcre2_jit_compile(code->compiled.get(), PCRE2_JIT_COMPLETE);
  code->limits = checked<MatchContextPtr>(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(code->limits.get(), kMatchLimit);
  pcre2_set_heap_limit(code->limits.get(), kHeapLimitKib);
  code->source = pattern;
  Regex regex;
  regex.code_ = std::move(code);
  return regex;
}

void Regex::find_all(std::string_view text, std::vector<Span>& out) const {
  const auto data = checked<MatchDataPtr>(pcre2_match_data_create(1, nullptr));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
  MatchContextPtr deeper;
  JitStackPtr stack;
  const auto match_from = [&](size_t from) {
    return pcre2_match(code_->compiled.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK, data.get(), deeper ? deeper.get() : code_->limits.get());
  };
  size_t from = 0;
  size_t last_end = SIZE_MAX;
  while (from <= text.size()) {
    int found = match_from(from);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && !deeper) {
      stack = checked<JitStackPtr>(pcre2_jit_stack_create(64 << 10, kJitStackMaxBytes, nullptr));
      deeper = checked<MatchContextPtr>(pcre2_match_context_copy(code_->limits.get()));
      pcre2_jit_stack_assign(deeper.get(), nullptr, stack.get());
      found = match_from(from);
    }
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0) {
      throw Error(
          fmt::format("pattern '{}' at byte {} of a text: {}", code_->source, from, message_of(found)));
    }
    // \K inside a lookahead may set a start after the end, or before the beginning of the search.
    const Span match{std::max<size_t>(bounds[0], from), std::max<size_t>(bounds[1], from)};
    if (match.begin >= match.end && match.end == last_end) {
      if (from == text.size()) return;
      from += utf8_at(text, from).size;
      continue;
    }
    out.push_back({std::min(match.begin, match.end), match.end});
    from = last_end = match.end;
  }
}

}  // namespace quire::tokenize
