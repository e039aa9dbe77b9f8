#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backend/executor.h"
#include "backend/model_shape.h"
#include "base/ids.h"
#include "base/json.h"
#include "control/costs.h"

namespace quire::backend {

/// The K/V pools of an engine, and the batch slots.
struct PoolSize {
  uint32_t num_blocks = 0;
  uint32_t num_host_blocks = 0;  // of the host pool, for swap; 0: none
  uint32_t block_size = 16;      // tokens
  uint32_t num_slots = 0;
  uint32_t max_model_len = 0;  // tokens of the longest sequence
};

/// The memory that a device has left beside the weights.
struct DeviceMemory {
  uint64_t free_bytes = 0;
  uint64_t kv_bytes = 0;  // what K/V takes of it unless the user says otherwise
  std::string source;     // what states the limit, for messages: "/proc/meminfo"
};

/// How fast a device computes, measured or calculated.
struct StepSpeeds {
  uint64_t tokens_a_step = 0;  // prompt tokens without context that a step computes in the time asked for
  uint32_t context_cost = 0;   // see control::SchedulerConfig
  control::CostHints costs;
  /// Whether steps may take longer at other times, because other programs use the device too.
  bool varies = false;
};

/// A device with a model in its memory: everything that the rest of quire knows of a device. In order:
/// memory(), allocate(), then probe() and make_executor(). Not thread-safe, but the executor and the calls
/// for single blocks may move to another thread together. Every call throws Error if the device fails.
class Backend {
 public:
  virtual ~Backend() = default;

  /// One line on the model and the device, for people: "15,191,712 parameters, bf16 weights, ...".
  virtual std::string describe() const = 0;
  /// The sizes of the model, with the K/V in the type in which this device keeps it.
  virtual const ModelShape& shape() const = 0;
  /// nullopt: not known.
  virtual std::optional<DeviceMemory> memory() const = 0;

  /// Allocates the pools; called once. Throws Error if they are too large.
  virtual void allocate(const PoolSize& size) = 0;
  /// The bytes of pools and weights that the machine reports as available because nothing has touched them.
  virtual uint64_t untouched_bytes() const = 0;
  /// How much a step of `step_time` computes. A measurement overwrites the pool, so no block may be in use.
  virtual StepSpeeds probe(Nanos step_time) = 0;
  /// Takes the memory of steps of up to so many tokens now, where a device would otherwise take it during
  /// the first of them; called once the budget of a step is known. Overwrites nothing.
  virtual void reserve(uint32_t /*tokens*/) {}
  /// An executor over the pools; one at a time, and the backend must outlive it.
  virtual std::unique_ptr<Executor> make_executor() = 0;

  /// What the bits of a block depend on, beside the model's files, its config and the tokens: files with K/V
  /// serve each other if these are equal. Empty: the blocks hold nothing, and are neither read nor written.
  virtual json::object kv_facts() const = 0;
  /// Copies the K/V of one block to or from `bytes`, which has shape().kv_block_bytes(block size). No step
  /// may be in flight.
  virtual void read_block(BlockId block, std::span<std::byte> bytes) = 0;
  virtual void write_block(BlockId block, std::span<const std::byte> bytes) = 0;
};

}  // namespace quire::backend
