#include "grammar/compiler.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <dlpack/dlpack.h>
#include <fstream>
#include <list>
#include <malloc.h>
#include <mutex>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <utility>
#include <xgrammar/compiler.h>
#include <xgrammar/matcher.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "grammar/trial.h"

// XGrammar's log is ours (its option XGRAMMAR_LOG_CUSTOMIZE): what it says may quote a client's grammar, so
// it goes into the error for that client and into no log.
namespace xgrammar {
[[noreturn]] void LogFatalImpl(const std::string& /*file*/, int /*line*/, const std::string& message) {
  throw std::runtime_error(message);
}
void LogMessageImpl(const std::string& /*file*/, int /*line*/, int /*level*/,
                    const std::string& /*message*/) {}
// Of each thread (tools/xgrammar.ed).
__thread int64_t work_left = INT64_MAX;
}  // namespace xgrammar

namespace quire::grammar {
namespace {

constexpr int kNice = 10;
constexpr uint64_t kMaxGreetingBytes = uint64_t{1} << 30;
constexpr uint64_t kMaxGrammarBytes = uint64_t{64} << 20;
constexpr size_t kMaxMessageBytes = 1000;
constexpr std::string_view kTooAmbiguous = "the grammar is too ambiguous or recursive for so long an answer";
// In states of a parser, of 5 to 10 ns each, so that it does not depend on the machine where an answer ends.
constexpr int64_t kCommonMask = 40'000;  // what a mask may take at any time; those of schemas take a third
constexpr int64_t kMostBeyond = 20'000'000;  // what the masks of an answer may take beyond that

xgrammar::TokenizerInfo info_of(const Vocabulary& vocabulary) {
  return {vocabulary.tokens, xgrammar::VocabType::RAW, static_cast<int>(vocabulary.tokens.size()),
          std::vector<int32_t>(vocabulary.ends.begin(), vocabulary.ends.end()), false};
}

/// One thread, and nothing kept: what is kept is decided here.
xgrammar::GrammarCompiler compiler_of(const xgrammar::TokenizerInfo& info) {
  return {info, 1, /*cache_enabled=*/false};
}

/// Compiled grammars that are kept or in use.
using Bytes = std::atomic<uint64_t>;

struct Compiled {
  Compiled(xgrammar::CompiledGrammar of, std::shared_ptr<Bytes> counted, std::vector<TokenId> to_forbid)
      : grammar(std::move(of)),
        bytes(grammar.MemorySizeBytes()),
        all(std::move(counted)),
        forbidden(std::move(to_forbid)) {
    *all += bytes;
  }
  ~Compiled() { *all -= bytes; }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  const xgrammar::CompiledGrammar grammar;
  const uint64_t bytes;
  const std::shared_ptr<Bytes> all;
  const std::vector<TokenId> forbidden;  // everywhere
};

/// XGrammar 0.2.8 takes any byte for free text (TagDispatch), also kSpecialBytes.
std::vector<TokenId> forbidden_in(const std::string& grammar, const std::vector<TokenId>& special) {
  return grammar.find("TagDispatch(") == std::string::npos ? std::vector<TokenId>() : special;
}

/// What a mask takes grows with the answer under a grammar that is ambiguous or recursive without marks
/// between. Steps wait for it, so such an answer ends.
class GrammarMask final : public engine::MaskSource {
 public:
  GrammarMask(std::shared_ptr<const Compiled> of, std::shared_ptr<MaskAllowance> allowance)
      : compiled_(std::move(of)), allowance_(std::move(allowance)), matcher_(compiled_->grammar) {}

  void fill(std::span<uint32_t> mask) override {
    if (matcher_.IsTerminated()) return;
    if (refused_.empty()) {
      work([&] {
        int64_t words = static_cast<int64_t>(mask.size());
        DLTensor tensor{mask.data(), {kDLCPU, 0}, 1, {kDLInt, 32, 1}, &words, nullptr, 0};
        matcher_.FillNextTokenBitmask(&tensor);
      });
    }
    if (!refused_.empty()) throw backend::MaskRefused(refused_);
    for (const TokenId id : compiled_->forbidden) {
      mask[static_cast<size_t>(id) / 32] &= ~(1U << (static_cast<size_t>(id) % 32));
    }
  }
  void accept(TokenId token) override {
    if (matcher_.IsTerminated() || !refused_.empty()) return;
    bool accepted = false;
    work([&] { accepted = matcher_.AcceptToken(token); });
    if (accepted || !refused_.empty()) return;
    throw Error(fmt::format("internal: token {} was sampled, which the grammar forbids", token));
  }
  bool accept_text(std::string_view text) override {
    bool accepted = false;
    if (refused_.empty()) work([&] { accepted = matcher_.AcceptString(std::string(text)); });
    return accepted || !refused_.empty();
  }
  bool complete() const override { return matcher_.IsCompleted(); }

 private:
  /// Runs `parse`. If it takes too much, the parser is of no use any more and `refused_` says why.
  template <class Parse>
  void work(const Parse& parse) {
    const int64_t most = kCommonMask + beyond_;
    xgrammar::work_left = most;
    try {
      parse();
    } catch (...) {
      if (xgrammar::work_left >= 0) {
        xgrammar::work_left = INT64_MAX;
        throw;
      }
      refused_ = fmt::format("{}: to find the tokens that it permits takes too long", kTooAmbiguous);
    }
    const int64_t beyond = most - std::exchange(xgrammar::work_left, INT64_MAX) - kCommonMask;
    if (beyond <= 0) return;
    beyond_ -= beyond;
    if (allowance_ != nullptr && !allowance_->spend(beyond) && refused_.empty()) {
      refused_ =
          fmt::format("{}, and the answers of this client have taken too long together", kTooAmbiguous);
    }
  }

  const std::shared_ptr<const Compiled> compiled_;
  const std::shared_ptr<MaskAllowance> allowance_;  // of the client; may be null
  xgrammar::GrammarMatcher matcher_;
  int64_t beyond_ = kMostBeyond;  // what is left
  std::string refused_;           // why there are no masks any more
};

std::string shortened(std::string message) {
  if (message.size() > kMaxMessageBytes) message.resize(kMaxMessageBytes);
  return message;
}

void lower_priority() { setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice); }

}  // namespace

bool can_compile() { return true; }

class Compiler::Impl {
 public:
  Impl(Vocabulary vocabulary, CompilerConfig config)
      : config_(std::move(config)),
        info_(info_of(vocabulary)),
        compiler_(compiler_of(info_)),
        trial_(config_, greeting_of(config_, vocabulary)) {
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      if (vocabulary.tokens[id] == kSpecialBytes) special_.push_back(static_cast<TokenId>(id));
    }
  }

  engine::MakeMaskSource find(const std::string& grammar, std::shared_ptr<MaskAllowance> allowance) {
    const std::lock_guard lock(kept_mutex_);
    const auto found = places_.find(grammar);
    if (found == places_.end()) return {};
    kept_.splice(kept_.begin(), kept_, found->second);
    return masks_of(found->second->compiled, std::move(allowance));
  }

  tl::expected<engine::MakeMaskSource, CompileError> compile(const std::string& grammar,
                                                             std::shared_ptr<MaskAllowance> allowance) {
    const std::lock_guard turn(turn_);
    lower_priority();
    if (auto kept = find(grammar, allowance)) return kept;  // those before may have compiled it
    if (auto failed = trial_.try_out(grammar)) return tl::unexpected(std::move(*failed));
    std::shared_ptr<const Compiled> compiled;
    if (auto failed = make(grammar, compiled)) return tl::unexpected(std::move(*failed));
    return masks_of(std::move(compiled), std::move(allowance));
  }

  void interrupt() { trial_.interrupt(); }

 private:
  struct Kept {
    std::string grammar;
    std::shared_ptr<const Compiled> compiled;
  };

  static engine::MakeMaskSource masks_of(std::shared_ptr<const Compiled> compiled,
                                         std::shared_ptr<MaskAllowance> allowance) {
    return [compiled = std::move(compiled),
            allowance = std::move(allowance)]() -> std::unique_ptr<engine::MaskSource> {
      return std::make_unique<GrammarMask>(compiled, allowance);
    };
  }

  std::optional<CompileError> make(const std::string& grammar, std::shared_ptr<const Compiled>& out) {
    try {
      out = std::make_shared<const Compiled>(compiler_.CompileGrammar(grammar), bytes_,
                                             forbidden_in(grammar, special_));
    } catch (const std::exception& error) {
      return CompileError{CompileFault::kInternal,
                          fmt::format("the grammar compiled in a trial only: {}", shortened(error.what()))};
    }
    const std::lock_guard lock(kept_mutex_);
    kept_.push_front({grammar, out});
    places_[grammar] = kept_.begin();
    kept_bytes_ += out->bytes + grammar.size();
    while (kept_bytes_ > config_.kept_bytes && !kept_.empty()) forget_oldest();
    if (*bytes_ <= config_.most_bytes) return std::nullopt;
    out = nullptr;
    return CompileError{CompileFault::kBusy,
                        fmt::format("the grammars in use take more than {} MiB", config_.most_bytes >> 20)};
  }

  void forget_oldest() {
    kept_bytes_ -= kept_.back().compiled->bytes + kept_.back().grammar.size();
    places_.erase(kept_.back().grammar);
    kept_.pop_back();
  }

  const CompilerConfig config_;
  std::vector<TokenId> special_;
  const std::shared_ptr<Bytes> bytes_ = std::make_shared<Bytes>(0);
  std::mutex turn_;  // guards the following three members; taken before kept_mutex_
  xgrammar::TokenizerInfo info_;
  xgrammar::GrammarCompiler compiler_;
  TrialProcess trial_;
  std::mutex kept_mutex_;  // guards the following members
  std::list<Kept> kept_;   // the most recent first
  std::unordered_map<std::string, std::list<Kept>::iterator> places_;
  uint64_t kept_bytes_ = 0;
};

Compiler::Compiler(Vocabulary vocabulary, CompilerConfig config)
    : impl_(std::make_unique<Impl>(std::move(vocabulary), std::move(config))) {}
Compiler::~Compiler() = default;

engine::MakeMaskSource Compiler::find(const std::string& grammar, std::shared_ptr<MaskAllowance> allowance) {
  return impl_->find(grammar, std::move(allowance));
}

tl::expected<engine::MakeMaskSource, CompileError> Compiler::compile(
    const std::string& grammar, std::shared_ptr<MaskAllowance> allowance) {
  return impl_->compile(grammar, std::move(allowance));
}

void Compiler::interrupt() { impl_->interrupt(); }

namespace {

/// Beyond what the process has now.
void limit_memory(uint64_t bytes) {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit limit{most, most};
  setrlimit(RLIMIT_AS, &limit);
}

/// The kernel ends the process once it has used as much CPU time; 0: no limit.
void limit_cpu(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  const itimerval timer{{0, 0},
                        {whole, static_cast<suseconds_t>((seconds - static_cast<double>(whole)) * 1e6)}};
  setitimer(ITIMER_PROF, &timer, nullptr);
}

std::string trial_answer(xgrammar::GrammarCompiler& compiler, const std::string& grammar) {
  try {
    compiler.CompileGrammar(grammar);
    return "";
  } catch (const std::bad_alloc&) {
    _exit(kNoMemory);  // the limit of memory: the other side says so
  } catch (const std::exception& error) {
    const std::string message = shortened(error.what());
    return message.empty() ? "unknown error" : message;
  }
}

void answer_trials() {
  std::string message;
  if (!read_message(STDIN_FILENO, message, kMaxGreetingBytes, -1)) return;
  std::optional<Greeting> greeting = read_greeting(message);
  if (!greeting) return;
  xgrammar::TokenizerInfo info = info_of(greeting->vocabulary);
  xgrammar::GrammarCompiler compiler = compiler_of(info);
  greeting->vocabulary = {};
  limit_memory(greeting->bytes);
  while (read_message(STDIN_FILENO, message, kMaxGrammarBytes, -1)) {
    limit_cpu(greeting->cpu_seconds);
    const std::string answer = trial_answer(compiler, message);
    limit_cpu(0);
    if (!write_message(STDIN_FILENO, answer)) return;
  }
}

}  // namespace

int compile_trials() {
  // No signal tells it that the other process has ended: PR_SET_PDEATHSIG would when the thread that started
  // this one ends. The socket is closed then, and a trial at work has its limit of CPU time.
  mallopt(M_ARENA_MAX, 1);  // an arena for the thread would reserve memory before the limit is set
  setpriority(PRIO_PROCESS, 0, kNice);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // A thread has the same stack as the one that compiles in the other process; what overflows it ends this
  // one.
  std::thread(answer_trials).join();
  return 0;
}

}  // namespace quire::grammar
