#include "backend/cuda/device.h"
#include "backend/cuda/sample.h"
#include "backend/cuda/sample_best.h"
#include "backend/cuda/sample_block.h"
#include "backend/cuda/sample_logits.h"
#include "backend/cuda/sample_math.h"
#include "base/rng.h"

namespace quire::backend::cuda {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();

uint32_t num_spans(uint32_t vocabulary) { return (vocabulary + kSpan - 1) / kSpan; }

/// Where a row's part of the workspace has what.
struct Workspace {
  float* changed;  // the logits after lists and masks
  LogitView view;
};

__device__ Workspace workspace_of(const SampleArgs& args, size_t row_bytes) {
  const uint32_t spans = (args.vocabulary + kSpan - 1) / kSpan;
  auto* at = static_cast<unsigned char*>(args.workspace) + block_x() * row_bytes;
  Workspace out{};
  out.view.vocabulary = args.vocabulary;
  out.view.spans = spans;
  out.view.entries = reinterpret_cast<uint64_t*>(at);
  out.view.spare = out.view.entries + size_t{spans} * kSpan;
  out.changed = reinterpret_cast<float*>(out.view.spare + size_t{spans} * kSpan);
  out.view.maxima = out.changed + size_t{spans} * kSpan;
  return out;
}

/// The first id whose logit is not finite, or UINT32_MAX. Copies the logits to `to` unless that is null.
__device__ uint32_t check_logits(const float* logits, float* to, uint32_t vocabulary,
                                 const SampleShared& shared) {
  uint32_t bad = UINT32_MAX;
  for (uint32_t i = thread_x() * 4; i < vocabulary; i += kThreads * 4) {
    const Floats<float> piece = load_logits(logits, i, vocabulary);
    QUIRE_UNROLL
    for (uint32_t j = 4; j-- > 0;) {
      if (i + j < vocabulary && !is_finite(piece.at[j])) bad = i + j < bad ? i + j : bad;
    }
    if (to != nullptr) ptx::store_128(to + i, pack<float>(piece));
  }
  return ~reduce_max(~bad, shared);
}

__device__ float penalised(float logit, uint32_t in_output, const SampleRow& row) {
  float x = logit > 0.0F ? logit / row.repetition_penalty : ptx::product(logit, row.repetition_penalty);
  if (in_output > 0) {
    x -= ptx::product(row.frequency_penalty, static_cast<float>(in_output));
    x -= row.presence_penalty;
  }
  return clamp_to_finite(x);
}

/// The row's late token, the newest being 0; -1 if there is none or it could not be sampled.
__device__ __forceinline__ TokenId late_token(const SampleArgs& args, const SampleRow& row, uint32_t which) {
  return which < row.num_late ? args.tokens[row.late_places[which]] : -1;
}

__device__ uint32_t times_late(const SampleArgs& args, const SampleRow& row, TokenId id) {
  uint32_t times = 0;
  for (uint32_t i = 0; i < row.num_late; ++i) times += late_token(args, row, i) == id ? 1 : 0;
  return times;
}

__device__ bool is_counted(const SampleArgs& args, ListPart counts, TokenId id) {
  const CountedToken* first = args.counts + counts.first;
  uint32_t begin = 0;
  for (uint32_t end = counts.count; begin < end;) {
    const uint32_t middle = (begin + end) / 2;
    if (first[middle].id < id) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin < counts.count && first[begin].id == id;
}

/// Penalties of late tokens that the counts lack. By one thread.
__device__ void penalise_late(float* logits, const SampleArgs& args, const SampleRow& row) {
  for (uint32_t i = 0; i < row.num_late; ++i) {
    const TokenId id = late_token(args, row, i);
    bool is_first = id >= 0;
    for (uint32_t j = 0; j < i; ++j) is_first = is_first && late_token(args, row, j) != id;
    if (!is_first || is_counted(args, row.counts, id)) continue;
    logits[id] = penalised(logits[id], times_late(args, row, id), row);
  }
}

__device__ bool is_forbidden(const ForbiddenToken& one, const SampleArgs& args, const SampleRow& row) {
  for (uint32_t i = 0; i < kMostLateTokens; ++i) {
    if (one.after[i] != kAnyToken && one.after[i] != late_token(args, row, i)) return false;
  }
  return true;
}

/// Bias, penalties, forbidden tokens, in this order; no list has a token twice but the last.
__device__ void apply_lists(float* logits, const SampleArgs& args, const SampleRow& row) {
  for (uint32_t i = thread_x(); i < row.biases.count; i += kThreads) {
    const BiasedToken& one = args.biases[row.biases.first + i];
    logits[one.id] = clamp_to_finite(logits[one.id] + one.bias);
  }
  sync_block();
  for (uint32_t i = thread_x(); i < row.counts.count; i += kThreads) {
    const CountedToken& one = args.counts[row.counts.first + i];
    logits[one.id] = penalised(logits[one.id], one.in_output + times_late(args, row, one.id), row);
  }
  sync_block();
  if (thread_x() == 0) {
    if (row.counts.count > 0) penalise_late(logits, args, row);
    for (uint32_t i = 0; i < row.forbidden.count; ++i) {
      const ForbiddenToken& one = args.forbidden[row.forbidden.first + i];
      if (is_forbidden(one, args, row)) logits[one.id] = kForbiddenLogit;
    }
  }
  sync_block();
}

__device__ const uint32_t* mask_of(const SampleArgs& args, uint32_t number) {
  return number == kNoMask ? nullptr : args.masks + size_t{number} * ((args.vocabulary + 31) / 32);
}

/// Forbids what one of the masks does (each may be null; if one is not, view.values are at `changed`), and
/// finds the maxima. A thread changes only spans of its own.
__device__ void finish_view(LogitView& view, float* changed, const uint32_t* mask, const uint32_t* other,
                            const SampleShared& shared) {
  float max = kForbiddenLogit;
  for (uint32_t span = thread_x(); span < view.spans; span += kThreads) {
    float of_span = kForbiddenLogit;
    for (uint32_t i = span * kSpan; i < (span + 1) * kSpan && i < view.vocabulary; i += 4) {
      Floats<float> piece = load_logits(view.values, i, view.vocabulary);
      const uint32_t permitted =
          (mask == nullptr ? UINT32_MAX : mask[i / 32]) & (other == nullptr ? UINT32_MAX : other[i / 32]);
      QUIRE_UNROLL
      for (uint32_t j = 0; j < 4; ++j) {
        if ((permitted >> (i % 32 + j) & 1U) == 0) piece.at[j] = kForbiddenLogit;
        of_span = larger(of_span, piece.at[j]);
      }
      if (permitted != UINT32_MAX) ptx::store_128(changed + i, pack<float>(piece));
    }
    view.maxima[span] = of_span;
    max = larger(max, of_span);
  }
  view.max = number_of_ordered(reduce_max(ordered_bits(max), shared));
}

__device__ __forceinline__ const float* weights_of(const LogitView& view) {
  return reinterpret_cast<const float*>(view.spare);
}

/// Of the first `count` entries.
__device__ void weigh_entries(const LogitView& view, uint32_t count, float temperature) {
  auto* weights = reinterpret_cast<float*>(view.spare);
  for (uint32_t i = thread_x(); i < count; i += kThreads) {
    weights[i] = weight_of(view, value_of(view.entries[i]), temperature);
  }
  sync_block();
}

// The three below are of one thread.

__device__ double sum_entries(const LogitView& view, uint32_t count) {
  double sum = 0.0;
  for (uint32_t i = 0; i < count; ++i) sum += static_cast<double>(weights_of(view)[i]);
  return sum;
}

/// From all entries, in the order of ids.
__device__ uint32_t draw_of_all(const LogitView& view, uint32_t count, double uniform) {
  const double target = uniform * sum_entries(view, count);
  double sum = 0.0;
  for (uint32_t i = 0; i < count; ++i) {
    sum += static_cast<double>(weights_of(view)[i]);
    if (sum > target) return id_of(view.entries[i]);
  }
  return id_of(view.entries[count - 1]);
}

/// From the best entries whose weights reach `wanted`, the worst of them first; all are sorted.
__device__ uint32_t draw_of_best(const LogitView& view, uint32_t count, double wanted, double uniform) {
  double mass = 0.0;
  uint32_t kept = 0;
  for (; kept < count && (mass < wanted || mass == 0.0); ++kept) {
    mass += static_cast<double>(weights_of(view)[kept]);
  }
  const double target = uniform * mass;
  double sum = 0.0;
  for (uint32_t i = kept; i-- > 0;) {
    sum += static_cast<double>(weights_of(view)[i]);
    if (sum > target) return id_of(view.entries[i]);
  }
  return id_of(view.entries[0]);
}

/// As SequenceSampler::draw.
__device__ TokenId draw(const LogitView& view, const SampleRow& row, const SampleShared& shared) {
  const double uniform = unit_interval(keyed_random(row.seed, row.choice, row.position));
  const float temperature = row.temperature;
  const auto top_k = static_cast<uint32_t>(row.top_k);
  const bool has_top_k = row.top_k > 0 && top_k < view.vocabulary;
  const bool has_min_p = row.min_p_reach > kForbiddenLogit;
  const bool is_first = thread_x() == 0;
  float least = kLowest;
  if (has_top_k) {
    const uint32_t found = collect_best(view, top_k, shared);
    if (found >= top_k) least = larger(least, value_of(view.entries[top_k - 1]));
    sync_block();
  }
  if (has_min_p) least = larger(least, view.max + row.min_p_reach);
  double mass = 0.0;
  if (!has_top_k && !has_min_p) {
    mass = sum_weights(view, temperature, shared);
    if (row.top_p >= 1.0F) {
      const TokenId token = is_first ? find_in_sums(view, temperature, uniform * mass, shared) : 0;
      return static_cast<TokenId>(of_first_thread(static_cast<uint64_t>(token), shared));
    }
    // Only what top-p cannot reach is below it, whatever the last bits of the logarithm.
    const double bound = (1.0 - static_cast<double>(row.top_p)) * mass / view.vocabulary;
    least = larger(least, view.max + temperature * (static_cast<float>(std::log(bound)) - 0.01F));
  }
  const uint32_t count = collect(view, least, shared);
  weigh_entries(view, count, temperature);
  uint64_t token = 0;
  if (row.top_p < 1.0F) {
    if (has_top_k || has_min_p) mass = of_first_thread(is_first ? sum_entries(view, count) : 0.0, shared);
    sort_entries(view.entries, view.spare, count, shared);
    weigh_entries(view, count, temperature);
    const double wanted = static_cast<double>(row.top_p) * mass;
    if (is_first) token = draw_of_best(view, count, wanted, uniform);
  } else if (is_first) {
    token = draw_of_all(view, count, uniform);
  }
  return static_cast<TokenId>(of_first_thread(token, shared));
}

/// The logprob and rank of a token, the best ones, and the logprobs that the row names.
__device__ void rate(const LogitView& view, const SampleArgs& args, TokenId token,
                     const SampleShared& shared) {
  const SampleRow& row = args.rows[block_x()];
  SampledRow& out = args.results[block_x()];
  const double log_sum = std::log(sum_weights(view, 1.0F, shared));
  const auto logprob = [&](float value) {
    return static_cast<float>(static_cast<double>(value) - static_cast<double>(view.max) - log_sum);
  };
  const uint32_t rank = num_better(view, token, shared) + 1;
  const auto wanted = static_cast<uint32_t>(row.num_logprobs);
  const uint32_t found = wanted > 0 ? collect_best(view, wanted, shared) : 0;
  const uint32_t count = found < wanted ? found : wanted;
  if (thread_x() < count) {
    const uint64_t entry = view.entries[thread_x()];
    out.top[thread_x()] = {static_cast<TokenId>(id_of(entry)), logprob(value_of(entry))};
  }
  for (uint32_t i = thread_x(); i < row.rated.count; i += kThreads) {
    const uint32_t at = row.rated.first + i;
    args.rated_logprobs[at] = logprob(view.values[args.rated[at]]);
  }
  if (thread_x() != 0) return;
  out.logprob = logprob(view.values[token]);
  out.rank = rank;
  out.num_top = count;
}

__device__ void put(const SampleArgs& args, SampleStatus status, TokenId token, float logprob) {
  if (thread_x() != 0) return;
  SampledRow& out = args.results[block_x()];
  out.status = status;
  out.token = token;
  out.logprob = logprob;
  out.rank = 0;
  out.num_top = 0;
  args.tokens[args.rows[block_x()].place] = status == SampleStatus::kToken ? token : -1;
}

__global__ void __launch_bounds__(kThreads, 2) sample_kernel(SampleArgs args, size_t row_bytes) {
  auto* few = shared_memory<uint64_t>();
  auto* sums = reinterpret_cast<double*>(few + kThreads + kThreads / 2);
  const SampleShared shared{few, reinterpret_cast<uint32_t*>(few + kThreads), sums,
                            reinterpret_cast<uint32_t*>(sums)};
  const SampleRow& row = args.rows[block_x()];
  if (takes_best(row)) return;
  const float* logits = args.logits + size_t{row.logits} * args.stride;
  Workspace workspace = workspace_of(args, row_bytes);
  LogitView& view = workspace.view;
  const uint32_t* mask = mask_of(args, row.mask);
  const uint32_t* allowed = mask_of(args, row.allowed);
  const bool has_more = row.biases.count + row.counts.count + row.forbidden.count > 0 || allowed != nullptr;
  const bool is_changed = has_more || mask != nullptr;
  view.values = is_changed ? workspace.changed : logits;
  const uint32_t bad =
      check_logits(logits, is_changed ? workspace.changed : nullptr, args.vocabulary, shared);
  if (bad != UINT32_MAX) {
    put(args, SampleStatus::kNotFinite, static_cast<TokenId>(bad), logits[bad]);
    return;
  }
  if (has_more) apply_lists(workspace.changed, args, row);
  finish_view(view, workspace.changed, mask, allowed, shared);
  if (view.max == kForbiddenLogit) {
    put(args, SampleStatus::kNoToken, 0, 0.0F);
    return;
  }
  const TokenId token = row.temperature == 0.0F ? arg_max(view, shared) : draw(view, row, shared);
  put(args, SampleStatus::kToken, token, 0.0F);
  if (row.num_logprobs < 0) return;
  if (has_more) {  // they are of the model's own logits, or of those that the mask permits
    view.values = logits;
    if (mask != nullptr) {
      check_logits(logits, workspace.changed, args.vocabulary, shared);
      view.values = workspace.changed;
    }
    finish_view(view, workspace.changed, mask, nullptr, shared);
  }
  rate(view, args, token, shared);
}

}  // namespace

LaunchError sample(const SampleArgs& args, Stream stream) {
  if (args.vocabulary == 0 || args.vocabulary > kMostSampledVocabulary) return 1;
  if (args.num_best > 0) {
    if (const LaunchError error = sample_best(args, stream); error != 0) return error;
  }
  if (args.num_best == args.num_rows) return 0;
  constexpr size_t kCounts = kCountWords * sizeof(uint32_t);
  const size_t sums = num_spans(args.vocabulary) * sizeof(double);
  const size_t fixed = kThreads * (sizeof(uint64_t) + sizeof(uint32_t));
  const auto shared_bytes = static_cast<uint32_t>(fixed + (sums > kCounts ? sums : kCounts));
  return launch("sample", {{args.num_rows}, kThreads, shared_bytes, stream}, sample_kernel, args,
                sample_workspace_bytes(args.vocabulary));
}

}  // namespace quire::backend::cuda
