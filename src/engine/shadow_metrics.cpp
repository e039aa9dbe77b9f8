#include "engine/shadow_metrics.h"

#include <array>
#include <cmath>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace quire::engine {
namespace {

using Labels = prometheus::Labels;

const prometheus::Histogram::BucketBoundaries kErrorBuckets = {
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0};

}  // namespace

struct ShadowMetrics::Impl {
  using Counter = prometheus::Counter;

  /// Of a kind of step.
  struct Steps {
    Counter* predicted_device = nullptr;
    Counter* predicted_host = nullptr;
    Counter* observed_device = nullptr;
    Counter* observed_host = nullptr;
    prometheus::Gauge* bias = nullptr;
    Counter* extrapolated = nullptr;
  };
  /// Of a time of requests.
  struct Requests {
    Counter* predicted = nullptr;
    Counter* observed = nullptr;
    prometheus::Histogram* error = nullptr;

    void add(Nanos the_predicted, Nanos the_observed) const {
      predicted->Increment(static_cast<double>(the_predicted) * 1e-9);
      observed->Increment(static_cast<double>(the_observed) * 1e-9);
      error->Observe(std::abs(static_cast<double>(the_predicted - the_observed)) * 1e-9);
    }
  };

  explicit Impl(const std::string& model_name) : labels{{"model_name", model_name}} {
    auto& predicted = counters("quire:predicted_step_seconds_total",
                               "Time of the steps as the cost model has it (--shadow), by phase");
    auto& observed = counters("quire:observed_step_seconds_total", "Time that the same steps took, by phase");
    auto& bias = prometheus::BuildGauge()
                     .Name("quire:step_bias")
                     .Help(
                         "Predicted over observed time of the last 256 steps of a kind, less 1; 0 before "
                         "the first")
                     .Register(registry);
    auto& extrapolated =
        counters("quire:extrapolated_steps_total",
                 "Steps beyond what the cost model was fitted to: their predicted times are extrapolated");
    for (size_t i = 0; i < steps.size(); ++i) {
      const std::string kind(kStepKindNames[i]);
      const auto of = [&](auto& family, const char* phase) {
        Labels all = labels;
        all["kind"] = kind;
        all["phase"] = phase;
        return &family.Add(all);
      };
      Labels all = labels;
      all["kind"] = kind;
      steps[i] = {of(predicted, "device"), of(predicted, "host"), of(observed, "device"),
                  of(observed, "host"),    &bias.Add(all),        &extrapolated.Add(all)};
    }
    auto& refused =
        counters("quire:admission_refused_total",
                 "Requests refused by --admission slo: their own deadline could not be kept (deadline), or "
                 "they would have broken the promise to another (promise)");
    for (const bool broke_another : {false, true}) {
      Labels all = labels;
      all["reason"] = broke_another ? "promise" : "deadline";
      refused_by[broke_another ? 1 : 0] = &refused.Add(all);
    }
  }

  prometheus::Family<Counter>& counters(const std::string& name, const std::string& help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  Requests requests(const std::string& name, const std::string& what) {
    Counter& predicted = counters("quire:predicted_" + name + "_seconds_total",
                                  "Sum of the times " + what + ", as predicted when the request arrived")
                             .Add(labels);
    Counter& observed = counters("quire:observed_" + name + "_seconds_total",
                                 "Sum of the times that it took, of the same requests")
                            .Add(labels);
    prometheus::Histogram& error = prometheus::BuildHistogram()
                                       .Name("quire:" + name + "_prediction_error_seconds")
                                       .Help("Distance between predicted and observed time " + what)
                                       .Register(registry)
                                       .Add(labels, kErrorBuckets);
    return {&predicted, &observed, &error};
  }

  prometheus::Registry registry;
  Labels labels;
  std::array<Steps, kStepKindNames.size()> steps;
  std::array<Counter*, 2> refused_by{};
  Requests ttft = requests("ttft", "from arrival to the first token");
  Requests e2e = requests("e2e", "from arrival to the end of a request");
  Counter& extrapolated_forecasts =
      counters("quire:extrapolated_forecasts_total",
               "Requests foretold with steps beyond what the cost model was fitted to")
          .Add(labels);
  Counter& promised =
      counters("quire:deadlines_promised_total", "Requests with a deadline that --admission slo has admitted")
          .Add(labels);
  Counter& kept =
      counters("quire:deadlines_kept_total", "Of these, the ones whose first token came in time").Add(labels);
};

ShadowMetrics::ShadowMetrics(const std::string& model_name) : impl_(std::make_unique<Impl>(model_name)) {}
ShadowMetrics::~ShadowMetrics() = default;

void ShadowMetrics::step(StepKind kind, const StepCost& predicted, const StepCost& observed, double bias) {
  const Impl::Steps& of = impl_->steps[static_cast<size_t>(kind)];
  of.predicted_device->Increment(predicted.device * 1e-9);
  of.predicted_host->Increment(predicted.host * 1e-9);
  of.observed_device->Increment(observed.device * 1e-9);
  of.observed_host->Increment(observed.host * 1e-9);
  of.bias->Set(bias);
  if (predicted.is_extrapolated) of.extrapolated->Increment();
}

void ShadowMetrics::first_token(Nanos predicted, Nanos observed) { impl_->ttft.add(predicted, observed); }
void ShadowMetrics::end(Nanos predicted, Nanos observed) { impl_->e2e.add(predicted, observed); }
void ShadowMetrics::extrapolated_forecast() { impl_->extrapolated_forecasts.Increment(); }
void ShadowMetrics::promised() { impl_->promised.Increment(); }
void ShadowMetrics::kept() { impl_->kept.Increment(); }
void ShadowMetrics::refused(bool broke_another) { impl_->refused_by[broke_another ? 1 : 0]->Increment(); }

std::string ShadowMetrics::text() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace quire::engine
