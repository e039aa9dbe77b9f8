#include "tokenize/word_decoders.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "tokenize/replace_all.h"
#include "tokenize/whole_token_sink.h"

namespace quire::tokenize {
namespace {

class WordPieceStep : public DecodeStep {
 public:
  WordPieceStep(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  std::unique_ptr<TokenSink> start(TokenSink& next) const override {
    return std::make_unique<Sink>(next, *this);
  }
  std::string inside(std::string_view token, bool) const override { return rewritten(token, false); }

 private:
  std::string rewritten(std::string_view token, bool first) const {
    std::string out;
    if (first) {
      out = token;
    } else if (token.starts_with(prefix_)) {
      out = token.substr(prefix_.size());
    } else {
      out = fmt::format(" {}", token);
    }
    if (cleanup_) clean(out);
    return out;
  }

  /// The cleanup for English, as in the reference library: one replacement after the other.
  static void clean(std::string& text) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kReplacements = {{
        {" .", "."},
        {" ?", "?"},
        {" !", "!"},
        {" ,", ","},
        {" ' ", "'"},
        {" n't", "n't"},
        {" 'm", "'m"},
        {" do not", " don't"},
        {" 's", "'s"},
        {" 've", "'ve"},
        {" 're", "'re"},
    }};
    for (const auto& [from, to] : kReplacements) {
      for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
      }
    }
  }

  class Sink : public WholeTokenSink {
   public:
    Sink(TokenSink& next, const WordPieceStep& step) : WholeTokenSink(next), step_(step) {}
    void on_token(std::string_view token) override {
      pass(step_.rewritten(token, std::exchange(first_, false)));
    }

   private:
    const WordPieceStep& step_;
    bool first_ = true;
  };

  std::string prefix_;
  bool cleanup_;
};

class WordEndStep : public DecodeStep {
 public:
  explicit WordEndStep(std::string suffix) : suffix_(std::move(suffix)) {}
  std::unique_ptr<TokenSink> start(TokenSink& next) const override {
    return std::make_unique<Sink>(next, *this);
  }
  std::string inside(std::string_view token, bool) const override { return replace_all(token, suffix_, " "); }

 private:
  class Sink : public WholeTokenSink {
   public:
    Sink(TokenSink& next, const WordEndStep& step) : WholeTokenSink(next), step_(step) {}
    void on_token(std::string_view token) override {
      end_last(" ");
      // Whether this is the last one is not known yet; up to a suffix that does not matter.
      const size_t at = std::min(token.find(step_.suffix_), token.size());
      next_.write(token.substr(0, at));
      held_ = token.substr(at);
      open_ = true;
    }
    void finish() override {
      end_last("");
      next_.finish();
    }

   private:
    void end_last(std::string_view by) {
      if (!open_) return;
      if (!held_.empty()) next_.write(replace_all(held_, step_.suffix_, by));
      next_.end_token();
      open_ = false;
    }

    const WordEndStep& step_;
    std::string held_;
    bool open_ = false;
  };

  std::string suffix_;
};

}  // namespace

std::unique_ptr<DecodeStep> make_word_piece_decoder(std::string prefix, bool cleanup) {
  return std::make_unique<WordPieceStep>(std::move(prefix), cleanup);
}

std::unique_ptr<DecodeStep> make_word_end_decoder(std::string suffix) {
  return std::make_unique<WordEndStep>(std::move(suffix));
}

}  // namespace quire::tokenize
