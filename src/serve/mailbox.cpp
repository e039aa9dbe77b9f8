#include "serve/mailbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace quire {
namespace {

uint64_t size_of(const RequestOutput& output) {
  uint64_t bytes = sizeof output;
  for (const ChoiceOutput& choice : output.choices) {
    bytes += sizeof choice + choice.text.size();
    for (const SampledToken& token : choice.tokens) {
      bytes += sizeof token + token.top.size() * sizeof(TokenLogprob);
    }
  }
  return bytes;
}

void merge_choice(ChoiceOutput& into, ChoiceOutput news) {
  into.text += news.text;
  std::move(news.tokens.begin(), news.tokens.end(), std::back_inserter(into.tokens));
  into.finish = news.finish;
  into.stop_string = std::move(news.stop_string);
  into.stop_token = news.stop_token;
}

}  // namespace

Mailbox::Mailbox(const asio::any_io_executor& executor, size_t num_prompts, uint64_t max_bytes,
                 std::function<void()> on_overflow)
    : signal_(std::in_place, executor, asio::steady_timer::time_point::max()),
      max_bytes_(max_bytes),
      on_overflow_(std::move(on_overflow)),
      places_(num_prompts, kNothing) {}

void Mailbox::merge(RequestOutput& into, RequestOutput output) {
  for (ChoiceOutput& news : output.choices) {
    const auto same = std::find_if(into.choices.begin(), into.choices.end(),
                                   [&](const ChoiceOutput& choice) { return choice.index == news.index; });
    if (same == into.choices.end()) {
      into.choices.push_back(std::move(news));
    } else {
      merge_choice(*same, std::move(news));
    }
  }
  output.choices = std::move(into.choices);
  into = std::move(output);
}

void Mailbox::put(size_t prompt, RequestOutput output) {
  const std::lock_guard lock(mutex_);
  if (!signal_ || overflowed_) return;
  bytes_ += size_of(output);
  if (max_bytes_ > 0 && bytes_ > max_bytes_) {
    overflowed_ = true;
    pending_ = {};
    asio::post(signal_->get_executor(), [self = shared_from_this()] {
      if (self->signal_) self->on_overflow_();
      self->wake();
    });
    return;
  }
  if (places_[prompt] == kNothing) {
    places_[prompt] = pending_.size();
    pending_.push_back({prompt, std::move(output)});
  } else {
    merge(pending_[places_[prompt]].output, std::move(output));
  }
  if (!std::exchange(notified_, true)) {
    asio::post(signal_->get_executor(), [self = shared_from_this()] { self->wake(); });
  }
}

asio::awaitable<std::vector<Mailbox::News>> Mailbox::take() {
  const auto collect = [this] {
    const std::lock_guard lock(mutex_);
    for (const News& news : pending_) places_[news.prompt] = kNothing;
    bytes_ = 0;
    notified_ = false;
    return std::exchange(pending_, {});
  };
  std::vector<News> news = collect();
  if (!news.empty()) co_return news;
  // What comes from now on posts a wake-up, which runs on this executor, so not before the wait has begun.
  boost::system::error_code ignored;
  co_await signal_->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  co_return collect();
}

void Mailbox::wake() {
  if (signal_) signal_->cancel();
}

void Mailbox::close() {
  const std::lock_guard lock(mutex_);
  signal_.reset();
  pending_ = {};
}

}  // namespace quire
