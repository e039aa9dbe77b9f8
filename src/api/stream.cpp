#include <utility>

#include "api/open_stream.h"

namespace quire {
namespace api {
namespace {

std::optional<FinishReason> public_reason(std::optional<control::FinishReason> reason) {
  if (!reason) return std::nullopt;
  switch (*reason) {
    case control::FinishReason::kStop:
      return FinishReason::kStop;
    case control::FinishReason::kLength:
      return FinishReason::kLength;
    case control::FinishReason::kAbort:
      return FinishReason::kCancelled;
    case control::FinishReason::kError:
      break;
  }
  return std::nullopt;
}

}  // namespace

Exception exception_of(const RequestError& error) {
  switch (error.code) {
    case RequestErrorCode::kInvalid:
    case RequestErrorCode::kNotFound:
      return {Fault::kRequest, error.message};
    case RequestErrorCode::kTooLong:
      return {Fault::kTooLong, error.message};
    case RequestErrorCode::kQueueFull:
      return {Fault::kBusy, error.message};
    case RequestErrorCode::kShuttingDown:
    case RequestErrorCode::kInternal:
      break;
  }
  return {Fault::kEngine, error.message};
}

void Inbox::take(engine::RequestOutput output) {
  const std::lock_guard lock(mutex);
  for (const engine::ChoiceOutput& choice : output.choices) {
    text += choice.text;
    if (choice.finish) finish = public_reason(choice.finish);
  }
  // An output that only says why the request ended has no counts.
  if (!output.error) usage = {output.prompt_tokens, output.cached_tokens, output.completion_tokens};
  error = std::move(output.error);
  done = output.done;
  arrived.notify_all();
}

OpenStream::OpenStream(std::shared_ptr<const void> owner, engine::Engine& engine,
                       engine::GenerationRequest request)
    : owner_(std::move(owner)), engine_(engine), inbox_(std::make_shared<Inbox>()) {
  inbox_->usage.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  const auto id = engine.submit(
      std::move(request), [inbox = inbox_](engine::RequestOutput output) { inbox->take(std::move(output)); });
  if (!id) throw exception_of(id.error());
  id_ = *id;
}

std::optional<std::string> OpenStream::next() {
  std::unique_lock lock(inbox_->mutex);
  inbox_->arrived.wait(lock, [this] { return !inbox_->text.empty() || inbox_->done; });
  if (!inbox_->text.empty()) return std::exchange(inbox_->text, {});
  if (inbox_->error) throw exception_of(*inbox_->error);
  return std::nullopt;
}

std::optional<FinishReason> OpenStream::finish() const {
  const std::lock_guard lock(inbox_->mutex);
  return inbox_->done && !inbox_->error ? inbox_->finish : std::nullopt;
}

Usage OpenStream::usage() const {
  const std::lock_guard lock(inbox_->mutex);
  return inbox_->usage;
}

}  // namespace api

Exception::Exception(Fault fault, const std::string& what) : std::runtime_error(what), fault_(fault) {}
Exception::~Exception() = default;

Stream::Stream(std::unique_ptr<api::OpenStream> open) : open_(std::move(open)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

std::optional<std::string> Stream::next() { return open_->next(); }

std::string Stream::rest() {
  std::string text;
  while (const std::optional<std::string> piece = next()) text += *piece;
  return text;
}

void Stream::cancel() noexcept { open_->cancel(); }
std::optional<FinishReason> Stream::finish() const { return open_->finish(); }
Usage Stream::usage() const { return open_->usage(); }

}  // namespace quire
