#include "engine/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace quire::engine {
namespace {

using Labels = prometheus::Labels;
using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets kFirstTokenBuckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25, 0.5,
                                    0.75,  1.0,   2.5,  5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0};
const Buckets kInterTokenBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                    0.2,   0.3,    0.4,   0.5,  0.75,  1.0,  2.5,   5.0};
const Buckets kEndToEndBuckets = {0.1,  0.3,  0.5,  0.8,  1.0,  1.5,  2.0,   2.5,   5.0,   10.0,
                                  15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0};

/// For the phases of a request: vLLM's buckets, and three lower ones for the times of a short queue.
const Buckets kPhaseBuckets = {0.01, 0.03, 0.1,   0.3,   0.5,   0.8,   1.0,    1.5,
                               2.0,  2.5,  5.0,   10.0,  15.0,  20.0,  30.0,   40.0,
                               50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
/// 1, 2, 5, ... as in vLLM, which stops at the model's length.
const Buckets kTokenBuckets = {1,    2,    5,      10,     20,     50,      100,     200,     500,      1000,
                               2000, 5000, 10'000, 20'000, 50'000, 100'000, 200'000, 500'000, 1'000'000};

double seconds(Nanos time) { return static_cast<double>(time) * 1e-9; }

/// Counters only increase: raises one to a total that is kept elsewhere.
void raise_to(prometheus::Counter& counter, uint64_t total) {
  counter.Increment(static_cast<double>(total) - counter.Value());
}

}  // namespace

struct EngineMetrics::Impl {
  explicit Impl(const std::string& model_name) : labels{{"model_name", model_name}} {}

  prometheus::Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Counter& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
  }
  prometheus::Counter& finished(const char* reason) {
    Labels all = labels;
    all["finished_reason"] = reason;
    return finished_family.Add(all);
  }

  prometheus::Registry registry;
  Labels labels;

  prometheus::Gauge& running = gauge("vllm:num_requests_running", "Sequences in the running batch");
  prometheus::Gauge& waiting = gauge("vllm:num_requests_waiting", "Sequences in the queue");
  prometheus::Gauge& kv_usage =
      gauge("vllm:kv_cache_usage_perc",
            "Share of the K/V blocks that requests hold (1 = all); cached blocks do not count");
  prometheus::Gauge& token_budget =
      gauge("quire:step_token_budget", "Token budget of the last step; it falls when steps take long");
  prometheus::Counter& preemptions = counter("vllm:num_preemptions_total", "Preemptions");
  prometheus::Counter& prefix_queries =
      counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache");
  prometheus::Counter& prefix_hits =
      counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache");
  prometheus::Counter& prompt = counter("vllm:prompt_tokens_total", "Prompt tokens of admitted requests");
  prometheus::Counter& generation = counter("vllm:generation_tokens_total", "Tokens generated");
  prometheus::Histogram& first_token = histogram(
      "vllm:time_to_first_token_seconds", "From arrival to the first token (TTFT)", kFirstTokenBuckets);
  prometheus::Histogram& inter_token = histogram(
      "vllm:inter_token_latency_seconds", "Between two tokens of a sequence (ITL)", kInterTokenBuckets);
  prometheus::Histogram& end_to_end =
      histogram("vllm:e2e_request_latency_seconds", "From arrival to the end of a request", kEndToEndBuckets);
  prometheus::Histogram& queue_time =
      histogram("vllm:request_queue_time_seconds", "From arrival to the first admission", kPhaseBuckets);
  prometheus::Histogram& prefill_time = histogram(
      "vllm:request_prefill_time_seconds", "From the first admission to the first token", kPhaseBuckets);
  prometheus::Histogram& decode_time =
      histogram("vllm:request_decode_time_seconds", "From the first token to the last", kPhaseBuckets);
  prometheus::Histogram& prompt_length =
      histogram("vllm:request_prompt_tokens", "Tokens of the prompt of an ended choice", kTokenBuckets);
  prometheus::Histogram& answer_length =
      histogram("vllm:request_generation_tokens", "Tokens of an ended choice", kTokenBuckets);
  prometheus::Histogram& longest_answer = histogram("vllm:request_max_num_generation_tokens",
                                                    "Tokens of a request's longest choice", kTokenBuckets);
  prometheus::Family<prometheus::Counter>& finished_family = prometheus::BuildCounter()
                                                                 .Name("vllm:request_success_total")
                                                                 .Help("Finished choices, by reason")
                                                                 .Register(registry);
  prometheus::Counter* by_reason[4] = {&finished("stop"), &finished("length"), &finished("abort"),
                                       &finished("error")};
};

EngineMetrics::EngineMetrics(const std::string& model_name) : impl_(std::make_unique<Impl>(model_name)) {}
EngineMetrics::~EngineMetrics() = default;

void EngineMetrics::step(const control::StepStats& stats) {
  impl_->running.Set(stats.running);
  impl_->waiting.Set(stats.waiting);
  impl_->kv_usage.Set(
      stats.blocks_total == 0 ? 0.0 : static_cast<double>(stats.blocks_referenced) / stats.blocks_total);
  impl_->token_budget.Set(stats.token_budget);
  raise_to(impl_->preemptions, stats.total_preemptions);
  raise_to(impl_->prefix_queries, stats.total_prefix_queried_tokens);
  raise_to(impl_->prefix_hits, stats.total_prefix_hit_tokens);
}

void EngineMetrics::prompt_tokens(uint64_t count) { impl_->prompt.Increment(static_cast<double>(count)); }
void EngineMetrics::generated_tokens(uint64_t count) {
  impl_->generation.Increment(static_cast<double>(count));
}
void EngineMetrics::time_to_first_token(Nanos time) { impl_->first_token.Observe(seconds(time)); }
void EngineMetrics::inter_token_latency(Nanos time) { impl_->inter_token.Observe(seconds(time)); }

void EngineMetrics::choice_ended(const EndedChoice& choice) {
  const SequenceTimes& times = choice.times;
  impl_->by_reason[static_cast<size_t>(choice.reason)]->Increment();
  impl_->end_to_end.Observe(seconds(choice.ended - choice.arrived));
  impl_->prompt_length.Observe(choice.prompt_tokens);
  impl_->answer_length.Observe(choice.generated_tokens);
  if (times.admitted < 0) return;
  impl_->queue_time.Observe(seconds(times.admitted - choice.arrived));
  if (times.first_token < 0) return;
  impl_->prefill_time.Observe(seconds(times.first_token - times.admitted));
  impl_->decode_time.Observe(seconds(times.last_token - times.first_token));
}

void EngineMetrics::request_ended(uint32_t most_tokens) { impl_->longest_answer.Observe(most_tokens); }

void EngineMetrics::cost_warning(const std::string& flag, const std::string& warning) {
  prometheus::Labels labels = impl_->labels;
  labels["flag"] = flag;
  labels["warning"] = warning;
  prometheus::BuildGauge()
      .Name("quire:cost_warning")
      .Help("1: the times of a cost model may not be those of this server; the label says why")
      .Register(impl_->registry)
      .Add(labels)
      .Set(1);
}

std::string EngineMetrics::text() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace quire::engine
