#include "api/requests.h"

#include <string_view>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include "base/utf8.h"

namespace quire::api {
namespace {

constexpr uint32_t kMostThreads = 1024;
constexpr uint32_t kMostSequences = 65536;
constexpr float kMostTemperature = 100;
constexpr float kMostPenalty = 100;

void require_option(bool holds, std::string_view flag, uint64_t given, std::string_view range) {
  if (!holds) throw Error(fmt::format("{}: {} is not {}", flag, given, range));
}

void require(bool holds, std::string_view field, std::string_view what) {
  if (!holds) throw Exception(Fault::kRequest, fmt::format("{}: {}", field, what));
}

/// The given value if there is one, else the model's, else what is there. NaN is in no range.
template <class T, class InRange>
void pick(std::string_view field, const std::optional<T>& given, const std::optional<T>& suggested, T& into,
          InRange in_range, std::string_view range) {
  if (given) require(in_range(*given), field, fmt::format("{} is not {}", *given, range));
  into = given.value_or(suggested.value_or(into));
}

}  // namespace

startup::EngineOptions engine_options(const std::string& path, const ModelOptions& options) {
  require_option(options.threads <= kMostThreads, "--threads", options.threads, "from 0 to 1024");
  require_option(options.max_num_seqs >= 1 && options.max_num_seqs <= kMostSequences, "--max-num-seqs",
                 options.max_num_seqs, "from 1 to 65536");
  require_option(options.max_waiting <= INT32_MAX, "--max-waiting", options.max_waiting,
                 "from 0 to 2147483647");
  startup::EngineOptions out;
  out.model.model = path;
  out.model.dtype = options.dtype;
  out.model.quantization = options.quantization;
  out.model.threads = options.threads;
  out.model.pack_cache = options.pack_cache;
  out.kv_cache_dtype = options.kv_cache_dtype;
  if (options.kv_cache_memory > 0) out.kv_cache_memory = std::to_string(options.kv_cache_memory);
  out.max_model_len = options.max_model_len;
  out.max_num_seqs = options.max_num_seqs;
  out.max_waiting = options.max_waiting;
  out.enable_prefix_caching = options.enable_prefix_caching;
  try {
    const startup::DeviceChoice choice = startup::find_device(options.device);
    out.device = choice.device;
    out.device_index = choice.index;
  } catch (const Error& error) {
    throw Error(fmt::format("--device: {}", error.what()));
  }
  return out;
}

engine::GenerationRequest engine_request(const RequestOptions& options, const SamplingDefaults& defaults) {
  engine::GenerationRequest out;
  SamplingParams& sampling = out.sampling;
  const auto from_0_to = [](float most) { return [most](float x) { return x >= 0 && x <= most; }; };
  const auto over_0_to = [](float most) { return [most](float x) { return x > 0 && x <= most; }; };
  pick("temperature", options.temperature, defaults.temperature, sampling.temperature,
       from_0_to(kMostTemperature), "from 0 to 100");
  pick(
      "top_k", options.top_k, defaults.top_k, sampling.top_k, [](int32_t k) { return k >= 0; }, "0 or more");
  pick("top_p", options.top_p, defaults.top_p, sampling.top_p, over_0_to(1), "over 0 and at most 1");
  pick("min_p", options.min_p, defaults.min_p, sampling.min_p, from_0_to(1), "from 0 to 1");
  pick("repetition_penalty", options.repetition_penalty, defaults.repetition_penalty,
       sampling.repetition_penalty, over_0_to(kMostPenalty), "over 0 and at most 100");
  require(!options.max_tokens || *options.max_tokens > 0, "max_tokens", "0 is not 1 or more");
  for (const std::string& stop : options.stop) require(!stop.empty(), "stop", "a text is empty");
  sampling.seed = options.seed;
  out.max_tokens = options.max_tokens;
  out.stop = options.stop;
  out.ignore_eos = options.ignore_eos;
  return out;
}

json::object template_context(const std::vector<Message>& messages) {
  require(!messages.empty(), "messages", "there are none");
  json::array list;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    const auto field = [i](std::string_view name) { return fmt::format("messages[{}].{}", i, name); };
    require(!role.empty(), field("role"), "is empty");
    require(is_valid_utf8(role), field("role"), "is not valid UTF-8");
    require(is_valid_utf8(content), field("content"), "is not valid UTF-8");
    list.push_back(json::object{{"role", role}, {"content", content}});
  }
  return {{"messages", std::move(list)}, {"add_generation_prompt", true}};
}

}  // namespace quire::api
