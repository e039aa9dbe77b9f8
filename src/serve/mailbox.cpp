#include "serve/mailbox.h"

#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace quire::serve {
namespace {

uint64_t size_of(const engine::RequestOutput& output) {
  uint64_t bytes = sizeof output;
  for (const engine::ChoiceOutput& choice : output.choices) {
    bytes += sizeof choice + choice.text.size();
    for (const SampledToken& token : choice.tokens) {
      bytes += sizeof token + token.top.size() * sizeof(TokenLogprob);
    }
  }
  return bytes;
}

}  // namespace

Mailbox::Mailbox(const asio::any_io_executor& executor, uint64_t max_bytes, std::function<void()> on_overflow)
    : signal_(std::in_place, executor, asio::steady_timer::time_point::max()),
      max_bytes_(max_bytes),
      on_overflow_(std::move(on_overflow)) {}

void Mailbox::put(size_t prompt, engine::RequestOutput output) {
  const std::lock_guard lock(mutex_);
  if (!signal_ || overflowed_) return;
  const uint64_t bytes = bytes_ + size_of(output);
  if (max_bytes_ > 0 && bytes > max_bytes_) {
    asio::post(signal_->get_executor(), [self = shared_from_this()] {
      if (self->signal_) self->on_overflow_();
      self->wake();
    });
    overflowed_ = true;
    pending_ = {};
    return;
  }
  pending_.push_back({prompt, std::move(output)});
  if (!notified_) {
    try {
      asio::post(signal_->get_executor(), [self = shared_from_this()] { self->wake(); });
    } catch (...) {
      pending_.pop_back();  // the caller tells it again, in another way
      throw;
    }
    notified_ = true;
  }
  bytes_ = bytes;
}

asio::awaitable<std::vector<Mailbox::News>> Mailbox::take() {
  const auto collect = [this] {
    const std::lock_guard lock(mutex_);
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

}  // namespace quire::serve
