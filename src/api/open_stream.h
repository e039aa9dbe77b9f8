#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "api/quire/quire.h"
#include "base/error.h"
#include "base/ids.h"
#include "engine/engine.h"

namespace quire::api {

/// The part of one answer that the engine has delivered and that has not been read. Shared with the engine's
/// sink.
struct Inbox {
  /// Called on the engine thread.
  void take(engine::RequestOutput output);

  std::mutex mutex;
  std::condition_variable arrived;
  std::string text;
  Usage usage;
  std::optional<FinishReason> finish;
  std::optional<RequestError> error;
  bool done = false;
};

/// A request that was submitted to an engine; destroying it aborts the request.
class OpenStream {
 public:
  /// `owner` keeps `engine` alive. Throws Exception if the engine refuses the request.
  OpenStream(std::shared_ptr<const void> owner, engine::Engine& engine, engine::GenerationRequest request);
  ~OpenStream() { cancel(); }
  OpenStream(const OpenStream&) = delete;
  OpenStream& operator=(const OpenStream&) = delete;

  std::optional<std::string> next();
  void cancel() noexcept { engine_.abort(id_); }
  std::optional<FinishReason> finish() const;
  Usage usage() const;

 private:
  std::shared_ptr<const void> owner_;
  engine::Engine& engine_;
  std::shared_ptr<Inbox> inbox_;
  RequestId id_ = 0;
};

/// `error` as it is thrown to the program.
Exception exception_of(const RequestError& error);

}  // namespace quire::api
