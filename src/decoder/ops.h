#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "decoder/batch.h"
#include "model/config.h"

namespace quire::decoder {

/// Matrices of activations in the memory of the device and in a number type of its own. They have a row for
/// each token of the batch.
enum class Rows : uint8_t {
  kResidual,  // [rows, hidden]
  kNormed,    // [rows, hidden]: what goes into attention or feed-forward
  kQkv,       // [rows, (heads + 2 kv_heads) * head_dim]: q, then k, then v
  kAttended,  // [rows, heads * head_dim]
  kAdded,     // [rows, hidden]: what comes out of attention or feed-forward
};

/// The norms of a layer that stand between its matrices (RMSNorm, Zhang and Sennrich 2019).
enum class Norm : uint8_t { kAttention, kPostAttention, kFeedForward, kPostFeedForward };

/// Cosines and sines, [positions][rotary] f32 in host memory: cosines in the first half of a row, sines in
/// the second. Those of one kind are the same at every call, as far as there are positions.
struct Rotation {
  model::LayerRope kind = model::LayerRope::kMain;  // never kNone
  uint32_t rotary = 0;                              // elements of each head that are rotated
  uint32_t positions = 0;
  const float* cos_sin = nullptr;
};

struct AttentionScores {
  float scale = 0.0F;     // factor of q.k
  uint32_t window = 0;    // a query at p reads keys in (p - window, p]; 0: all keys up to p
  float soft_cap = 0.0F;  // scores become soft_cap * tanh(score / soft_cap); 0: unchanged
};

/// The operations that a forward pass consists of, on one device that has the weights of one model. Each
/// reads and writes activations of the current batch; none may let a row's result depend on the other rows
/// or on how a prompt is cut into chunks. A device may carry them out later, as long as the order stays;
/// hidden() and logits() wait for what they return. Not thread-safe. Every call throws Error if the device
/// fails.
class Ops {
 public:
  virtual ~Ops() = default;

  /// The batch of all calls up to the next begin(); what it points to must outlive them. Blocks and positions
  /// have been checked.
  virtual void begin(const Batch& batch) = 0;
  /// Calls `layers`, which calls all operations of the batch from embed() to the last add(); a device may
  /// have kept what an earlier batch's came to, and repeat that instead. Which operations there are, and what
  /// they are called with, is the same for all batches of the model but for how far a Rotation goes.
  virtual void compute_layers(const std::function<void()>& layers) { layers(); }

  /// Whether the model has this norm.
  virtual bool has(Norm norm, uint32_t layer) const = 0;
  /// `to` = norm of `from`; both are [rows, hidden] and may be the same.
  virtual void norm(Norm norm, uint32_t layer, Rows from, Rows to) = 0;
  /// kResidual += factor * kAdded.
  virtual void add(float factor) = 0;
  /// add(), then norm() of kResidual into kNormed, for devices where one pass over the rows can do both.
  virtual void add_and_norm(float factor, Norm then, uint32_t layer) {
    add(factor);
    norm(then, layer, Rows::kResidual, Rows::kNormed);
  }

  /// kResidual = scale * the embeddings of the tokens.
  virtual void embed(float scale) = 0;
  /// kQkv = the layer's q, k and v of `from`.
  virtual void project_qkv(uint32_t layer, Rows from) = 0;
  /// Norm of q and k within kQkv, as ModelConfig::qk_norm says. Not called if it is kNone.
  virtual void norm_qk(uint32_t layer) = 0;
  /// Rotates q and k within kQkv (Su et al. 2021) by the positions of the batch.
  virtual void rotate(const Rotation& rotation) = 0;
  /// Writes k and v of kQkv into the sequences' blocks, then kAttended = causal attention of q over all K/V
  /// of its sequence. `group`: that of the layer, whose block tables count.
  virtual void attend(uint32_t layer, uint32_t group, const AttentionScores& scores) = 0;
  /// kAdded = the layer's output projection of kAttended.
  virtual void project_out(uint32_t layer) = 0;
  /// kAdded = the layer's feed-forward of `from`: one gated network, or the experts that its router chooses.
  virtual void feed_forward(uint32_t layer, Rows from) = 0;

  /// The final norm of some rows of kResidual, [rows.size()][hidden] f32 in host memory. `rows`: not empty,
  /// rising. Valid until the next call.
  virtual std::span<const float> hidden(std::span<const uint32_t> rows) = 0;
  /// The head of the same, [rows.size()][vocab], times scale, then capped: cap * tanh(x / cap) if cap is
  /// not 0.
  virtual std::span<const float> logits(std::span<const uint32_t> rows, float scale, float cap) = 0;
};

}  // namespace quire::decoder
