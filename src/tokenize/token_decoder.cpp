#include "tokenize/token_decoder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"
#include "tokenize/byte_level.h"
#include "tokenize/json_steps.h"
#include "tokenize/pre_tokenizer.h"
#include "tokenize/replace_all.h"
#include "tokenize/split.h"
#include "tokenize/whole_token_sink.h"
#include "tokenize/word_decoders.h"

namespace quire::tokenize {
namespace {

constexpr size_t kMaxTokenText = size_t{64} << 10;  // that a Replace may add to one token

/// Joins with spaces, where a file has no decoder.
class JoinStep : public DecodeStep {
 public:
  std::unique_ptr<TokenSink> start(TokenSink& next) const override { return std::make_unique<Sink>(next); }
  std::string inside(std::string_view token, bool) const override { return fmt::format(" {}", token); }

 private:
  class Sink : public WholeTokenSink {
   public:
    using WholeTokenSink::WholeTokenSink;
    void on_token(std::string_view token) override {
      if (!first_) next_.write(" ");
      first_ = false;
      pass(token);
    }

   private:
    bool first_ = true;
  };
};

class ReplaceStep : public DecodeStep {
 public:
  ReplaceStep(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::unique_ptr<TokenSink> start(TokenSink& next) const override {
    return std::make_unique<Sink>(next, *this);
  }
  std::string inside(std::string_view token, bool) const override { return replaced(token); }

 private:
  std::string replaced(std::string_view token) const {
    std::vector<Span> matches;
    pattern_.find_all(token, matches);
    if (matches.size() * content_.size() > kMaxTokenText) {
      throw Error("the tokenizer's decoder 'Replace' makes more than 64 KiB of one token");
    }
    std::string out;
    size_t done = 0;
    for (const Span& match : matches) {
      out += token.substr(done, match.begin - done);
      out += content_;
      done = match.end;
    }
    out += token.substr(done);
    return out;
  }

  class Sink : public WholeTokenSink {
   public:
    Sink(TokenSink& next, const ReplaceStep& step) : WholeTokenSink(next), step_(step) {}
    void on_token(std::string_view token) override { pass(step_.replaced(token)); }

   private:
    const ReplaceStep& step_;
  };
  Pattern pattern_;
  std::string content_;
};

/// "<0x0A>" -> 10; -1 for any other token.
int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  // Rust's from_str_radix takes a sign before a digit.
  if (token[3] == '+') return digit(token[4]);
  const int high = digit(token[3]);
  const int low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/// A run of byte tokens becomes one token if it is valid UTF-8, else one U+FFFD per byte.
class ByteFallbackStep : public DecodeStep {
 public:
  std::unique_ptr<TokenSink> start(TokenSink& next) const override { return std::make_unique<Sink>(next); }
  std::string inside(std::string_view token, bool) const override {
    const int byte = byte_of_token(token);
    return byte < 0 ? std::string(token) : std::string(1, static_cast<char>(byte));
  }

 private:
  class Sink : public WholeTokenSink {
   public:
    using WholeTokenSink::WholeTokenSink;
    void on_token(std::string_view token) override {
      if (const int byte = byte_of_token(token); byte >= 0) return on_byte(static_cast<char>(byte));
      end_run();
      pass(token);
    }
    void finish() override {
      end_run();
      next_.finish();
    }

   private:
    void on_byte(char byte) {
      if (broken_) return pass(kReplacementCharacter);
      run_ += byte;
      const Utf8Scan scan = scan_utf8(std::string_view(run_).substr(whole_));
      if (scan.status == Utf8Status::kValid) whole_ = run_.size();
      if (scan.status != Utf8Status::kInvalid) return;
      // No later bytes can make it valid UTF-8.
      for (size_t i = 0; i < run_.size(); ++i) pass(kReplacementCharacter);
      run_.clear();
      broken_ = true;
    }
    void end_run() {
      if (whole_ == run_.size()) {
        if (!run_.empty()) pass(run_);
      } else {
        for (size_t i = 0; i < run_.size(); ++i) pass(kReplacementCharacter);
      }
      run_.clear();
      whole_ = 0;
      broken_ = false;
    }

    std::string run_;
    size_t whole_ = 0;     // bytes of the run that are whole characters
    bool broken_ = false;  // the run is not valid UTF-8, and its part so far has been passed on
  };
};

class FuseStep : public DecodeStep {
 public:
  std::unique_ptr<TokenSink> start(TokenSink& next) const override { return std::make_unique<Sink>(next); }
  std::string inside(std::string_view token, bool) const override { return std::string(token); }
  bool fuses() const override { return true; }

 private:
  class Sink : public TokenSink {
   public:
    explicit Sink(TokenSink& next) : next_(next) {}
    void write(std::string_view text) override { next_.write(text); }
    void end_token() override {}
    void finish() override {
      next_.end_token();
      next_.finish();
    }

   private:
    TokenSink& next_;
  };
};

/// Takes up to `start` times `content` from the head of each token and up to `stop` times from its end.
class StripStep : public DecodeStep {
 public:
  StripStep(std::string content, size_t from_start, size_t from_stop)
      : content_(std::move(content)), start_(from_start), stop_(from_stop) {}
  std::unique_ptr<TokenSink> start(TokenSink& next) const override {
    return std::make_unique<Sink>(next, *this);
  }
  std::string inside(std::string_view token, bool fused) const override {
    if (fused) return std::string(token);  // the head and the end are elsewhere
    for (size_t i = 0; i < start_ && token.starts_with(content_); ++i) token.remove_prefix(content_.size());
    for (size_t i = 0; i < stop_ && token.ends_with(content_); ++i) token.remove_suffix(content_.size());
    return std::string(token);
  }

 private:
  class Sink : public TokenSink {
   public:
    Sink(TokenSink& next, const StripStep& step) : next_(next), step_(step) {}
    void write(std::string_view text) override {
      const std::string& content = step_.content_;
      while (at_start_ && !text.empty()) {
        if (stripped_ == step_.start_ || !text.starts_with(content)) {
          at_start_ = false;
          break;
        }
        ++stripped_;
        text.remove_prefix(content.size());
      }
      if (text.empty()) return;
      if (step_.stop_ == 0) return next_.write(text);
      // The last `stop` occurrences at the end so far may be stripped yet.
      size_t trailing = 0;
      std::string_view head = text;
      while (trailing < step_.stop_ && head.ends_with(content)) {
        head.remove_suffix(content.size());
        ++trailing;
      }
      if (!head.empty()) {
        write_held(held_);
      } else if (held_ + trailing > step_.stop_) {
        write_held(held_ + trailing - step_.stop_);
      }
      next_.write(head);
      held_ += trailing;
    }
    void end_token() override {
      next_.end_token();
      at_start_ = true;
      stripped_ = held_ = 0;
    }
    void finish() override { next_.finish(); }

   private:
    void write_held(size_t count) {
      for (size_t i = 0; i < count; ++i) next_.write(step_.content_);
      held_ -= std::min(count, held_);
    }

    TokenSink& next_;
    const StripStep& step_;
    bool at_start_ = true;
    size_t stripped_ = 0;
    size_t held_ = 0;  // occurrences of the content read but not written
  };

  std::string content_;
  size_t start_;
  size_t stop_;
};

class MetaspaceStep : public DecodeStep {
 public:
  explicit MetaspaceStep(Metaspace settings) : settings_(std::move(settings)) {}
  std::unique_ptr<TokenSink> start(TokenSink& next) const override {
    return std::make_unique<Sink>(next, *this);
  }
  std::string inside(std::string_view token, bool) const override {
    return replace_all(token, settings_.replacement, " ");
  }

 private:
  class Sink : public TokenSink {
   public:
    Sink(TokenSink& next, const MetaspaceStep& step) : next_(next), step_(step) {}
    void write(std::string_view text) override {
      const bool drop = first_ && step_.settings_.prepend != Metaspace::Prepend::kNever;
      next_.write(replace_all(text, step_.settings_.replacement, drop ? "" : " "));
    }
    void end_token() override {
      first_ = false;
      next_.end_token();
    }
    void finish() override { next_.finish(); }

   private:
    TokenSink& next_;
    const MetaspaceStep& step_;
    bool first_ = true;
  };

  Metaspace settings_;
};

/// All tokens become bytes, and these one token.
class ByteLevelStep : public DecodeStep {
 public:
  std::unique_ptr<TokenSink> start(TokenSink& next) const override { return std::make_unique<Sink>(next); }
  std::string inside(std::string_view token, bool) const override {
    std::string out;
    append_from_byte_level(out, token);
    return out;
  }
  bool fuses() const override { return true; }

 private:
  class Sink : public WholeTokenSink {
   public:
    using WholeTokenSink::WholeTokenSink;
    void on_token(std::string_view token) override {
      bytes_.clear();
      text_.clear();
      append_from_byte_level(bytes_, token);
      repair_.push(bytes_, text_);
      if (!text_.empty()) next_.write(text_);
    }
    void finish() override {
      text_.clear();
      repair_.finish(text_);
      if (!text_.empty()) next_.write(text_);
      next_.end_token();
      next_.finish();
    }

   private:
    Utf8Repair repair_;
    std::string bytes_;
    std::string text_;
  };
};

std::unique_ptr<DecodeStep> parse_step(const JsonObject& object) {
  const std::string type = object.string("type");
  if (type == "ByteLevel") return std::make_unique<ByteLevelStep>();
  if (type == "ByteFallback") return std::make_unique<ByteFallbackStep>();
  if (type == "Fuse") return std::make_unique<FuseStep>();
  if (type == "Metaspace") return std::make_unique<MetaspaceStep>(Metaspace::from_json(object));
  if (type == "Replace") {
    return std::make_unique<ReplaceStep>(Pattern::from_json(object, "pattern"), object.string("content"));
  }
  if (type == "Strip") {
    std::string content = object.string("content");
    if (!is_one_char(content)) throw object.error("content", "one character was expected");
    return std::make_unique<StripStep>(std::move(content),
                                       static_cast<size_t>(object.integer("start", 0, INT32_MAX)),
                                       static_cast<size_t>(object.integer("stop", 0, INT32_MAX)));
  }
  if (type == "WordPiece") {
    return make_word_piece_decoder(object.string("prefix"), object.boolean("cleanup"));
  }
  if (type == "BPEDecoder") {
    std::string suffix = object.string("suffix");
    if (suffix.empty()) throw object.error("suffix", "empty");
    return make_word_end_decoder(std::move(suffix));
  }
  throw object.error("type", fmt::format("decoder '{}' is not supported", type));
}

void parse_steps_into(const JsonObject& object, std::vector<std::unique_ptr<DecodeStep>>& out) {
  if (object.string("type") != "Sequence") {
    out.push_back(parse_step(object));
    return;
  }
  for (const JsonObject& step : json_objects(object, "decoders")) parse_steps_into(step, out);
}

}  // namespace

TokenDecoder::TokenDecoder(const JsonObject& parent, std::string_view key) {
  if (parent.has(key)) {
    parse_steps_into(parent.object(key), steps_);
  } else {
    steps_.push_back(std::make_unique<JoinStep>());
  }
}

std::unique_ptr<TokenDecoder::Run> TokenDecoder::start() const { return std::make_unique<Run>(steps_); }

std::string TokenDecoder::inside(std::string_view token) const {
  std::string bytes(token);
  bool fused = false;
  for (const auto& step : steps_) {
    bytes = step->inside(bytes, fused);
    fused = fused || step->fuses();
  }
  return bytes;
}

TokenDecoder::Run::Run(const std::vector<std::unique_ptr<DecodeStep>>& steps) {
  sinks_.reserve(steps.size());
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) sinks_.push_back((*step)->start(first()));
}

std::string TokenDecoder::Run::take() { return std::exchange(output_.taken, {}); }

}  // namespace quire::tokenize
