#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/decoder.h"
#include "kernels/context.h"
#include "tensor/dtype.h"

// The time of a model's single steps, without the engine around it.
namespace quire::bench {

struct LatencyPlan {
  std::vector<uint32_t> batches = {1, 8, 16, 32, 64};  // sequences that decode at once, a row each
  uint32_t prompt = 512;                               // tokens of the prompt, one row; 0: none
  uint32_t context = 64;                               // tokens that each sequence has before it decodes
  uint32_t steps = 8;                                  // decode steps of one measurement
  uint32_t repeats = 3;                                // measurements
};

struct LatencyRow {
  std::string name;     // "prefill 512", "decode x 8"
  uint32_t tokens = 0;  // of one step
  double seconds = 0;   // of one step, the median
};

/// `kv_dtype`: of the K/V; nullopt: the compute type. Calls `measured` plan.repeats times a row. Throws Error
/// if the model has too few positions for the plan, or the machine too little memory.
std::vector<LatencyRow> measure_latency(backend::cpu::Decoder& decoder, kernels::KernelContext& context,
                                        const LatencyPlan& plan, std::optional<DType> kv_dtype,
                                        const std::function<void()>& measured);

}  // namespace quire::bench
