#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#define QUIRE_API __attribute__((visibility("default")))

// libquire: the engine of `quire serve` in a program of your own, without HTTP. A Model is loaded once; its
// requests, from any number of threads, are computed together in one batch, and no answer depends, to the
// bit, on which others are in the batch. All texts are UTF-8. Any call may throw std::bad_alloc; no call
// reads the environment or changes signal handlers. Until version 1.0, each minor version may change this
// header and the ABI.
namespace quire {

namespace api {
class LoadedModel;
class OpenStream;
}  // namespace api

/// What is at fault.
enum class Fault {
  kModel,    // the model's files, an option, or too little memory: the model was not loaded
  kRequest,  // a field of a request, or the model has no chat template: the same request never succeeds
  kTooLong,  // the prompt and max_tokens are longer than Model::max_model_len()
  kBusy,     // ModelOptions::max_waiting requests wait, and no more can run: try again later
  kEngine,   // the computation failed; the request did nothing wrong
};

/// The error that all functions throw. what() is one line and names the file and the key, the option (as
/// `quire serve --help` spells it) or the field at fault.
class QUIRE_API Exception : public std::runtime_error {
 public:
  Exception(Fault fault, const std::string& what);
  ~Exception() override;

  Fault fault() const noexcept { return fault_; }

 private:
  Fault fault_;
};

/// What is written to standard error.
enum class Verbosity { kSilent, kErrors, kWarnings, kInfo };

/// Sets what all models of this process write to standard error; kWarnings unless it is called. Thread-safe.
QUIRE_API void set_log(Verbosity verbosity);

/// How a model is loaded, and how much runs at once. The options have the meanings and the defaults of the
/// flags of `quire serve`.
struct ModelOptions {
  std::string device = "cpu";               // "sim" computes nothing and answers with arbitrary words
  std::uint32_t threads = 0;                // 0: one per usable CPU; at most 1024
  std::string dtype = "auto";               // "f32", "f16", "bf16"
  std::string quantization = "auto";        // of the weights: "none", "int8", "int4"
  std::optional<std::string> pack_cache{};  // a folder for packed weights; empty text: the model's folder
  std::string kv_cache_dtype = "auto";      // "f32", "f16", "bf16", "int8"
  std::uint64_t kv_cache_memory = 0;        // bytes; 0: half of the free memory, at most what can be used
  std::uint32_t max_model_len = 0;    // tokens of prompt and answer; 0: the model's, limited by the memory
  std::uint32_t max_num_seqs = 64;    // requests that run at once: 1 to 65536
  std::uint32_t max_waiting = 1024;   // requests that wait
  bool enable_prefix_caching = true;  // share the K/V of equal beginnings of prompts
  std::string chat_template = "";     // its name in the model, or a .jinja file; empty: the model chooses
};

/// How one answer is generated. A field without a value has that of the model's generation_config.json, or
/// else the neutral one.
struct RequestOptions {
  std::optional<std::uint32_t> max_tokens{};  // at least 1; without a value: as many as max_model_len allows
  std::optional<float> temperature{};         // 0 to 100; 0: always the likeliest token
  std::optional<std::int32_t> top_k{};        // only so many of the likeliest tokens; 0: all
  std::optional<float> top_p{};               // over 0, at most 1
  std::optional<float> min_p{};               // 0 to 1
  std::optional<float> repetition_penalty{};  // over 0, at most 100
  std::uint64_t seed = 0;                     // the same seed gives the same answer
  std::vector<std::string> stop{};            // the answer ends before any of these; none is empty
  bool ignore_eos = false;                    // continue past the end of the answer
};

/// A message of a conversation. Roles are those of the model's chat template: "system", "user", "assistant".
struct Message {
  std::string role;
  std::string content;
};

/// Why an answer ended.
enum class FinishReason {
  kStop,       // the model ended it, or a text of RequestOptions::stop
  kLength,     // max_tokens, or the longest sequence
  kCancelled,  // cancel()
};

/// Tokens of one request.
struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;  // of the prompt: not computed, because the prefix cache had them
  std::uint32_t completion_tokens = 0;
};

/// One answer, while it is generated. It is computed whether it is read or not. It keeps its model in memory,
/// also after the Model is destroyed. A Stream is used by one thread at a time, except cancel(). A Stream
/// that was moved from may only be destroyed or assigned to.
class QUIRE_API Stream {
 public:
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  /// Cancels the rest of the answer.
  ~Stream();

  /// Waits for text and returns all that arrived since the last call: at least one character and only whole
  /// ones. nullopt at the end. Throws Exception (kEngine) if the generation failed; the text
  /// before the failure is returned first.
  std::optional<std::string> next();
  /// Waits for the end and returns the text that next() has not returned. Throws as next() does.
  std::string rest();

  /// Ends the answer soon. The text computed until then is still returned. May be called from any thread
  /// while the Stream exists; has no effect after the end.
  void cancel() noexcept;

  /// nullopt: the answer is still being generated, or it failed.
  std::optional<FinishReason> finish() const;
  /// So far; of the whole answer once next() has returned nullopt.
  Usage usage() const;

  /// for (const std::string& piece : stream): calls next() until the end. A stream can be walked once.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = std::string;
    using difference_type = std::ptrdiff_t;

    explicit Iterator(Stream& stream) : stream_(&stream), piece_(stream.next()) {}
    const std::string& operator*() const { return *piece_; }
    const std::string* operator->() const { return &*piece_; }
    Iterator& operator++() {
      piece_ = stream_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !piece_; }

   private:
    Stream* stream_;
    std::optional<std::string> piece_;
  };
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  friend class Model;
  explicit Stream(std::unique_ptr<api::OpenStream> open);
  std::unique_ptr<api::OpenStream> open_;
};

/// A model at work, as of its last step. Totals count from the start.
struct Stats {
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  std::uint32_t blocks_total = 0;       // of the K/V pool
  std::uint32_t blocks_referenced = 0;  // held by running requests
  std::uint32_t blocks_cached = 0;      // held by none, kept for prompts that begin alike
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;
  std::uint64_t cached_tokens = 0;  // of the prompts: found in the prefix cache
  std::uint64_t preemptions = 0;
};

/// A loaded model with its engine, which has a thread of its own and computes with `threads` in all. Its
/// methods are thread-safe; several models may be loaded. A Model that was moved from may only be destroyed
/// or assigned to.
class QUIRE_API Model {
 public:
  /// Loads `path`: a Hugging Face directory or a GGUF file. Throws Exception (kModel).
  explicit Model(const std::string& path, const ModelOptions& options = {});
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  /// The memory is free once the Model and all its Streams are destroyed.
  ~Model();

  /// Starts to continue `prompt`; if it is empty, from the model's BOS token. Invalid UTF-8 becomes U+FFFD.
  /// Throws Exception (all but kModel).
  Stream complete(std::string_view prompt, const RequestOptions& options = {});
  /// Starts to answer the last of `messages`, as the model's chat template renders them. Throws Exception
  /// (all but kModel).
  Stream chat(const std::vector<Message>& messages, const RequestOptions& options = {});

  /// Whether chat() is possible.
  bool has_chat_template() const;
  /// The most tokens that a prompt and its answer can have together.
  std::uint32_t max_model_len() const;
  Stats stats() const;

 private:
  std::shared_ptr<api::LoadedModel> loaded_;
};

}  // namespace quire
